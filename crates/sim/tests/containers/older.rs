//! Where one side is of an earlier version, which knows nothing of what is inside containers, plain
//! bytes travel, and nothing is lost.

use crate::packing::{files, gzip, tar, zip};
use crate::scene::{Scene, read, store, store_all};
use std::time::Duration;

/// A line at which a few kilobytes take so long that a session can break between any two messages.
const SLOW: u64 = 2_000;

/// Sees to it that the next session of a client is one with an earlier version, or no more.
async fn meet_older(scene: &Scene, number: usize, older: bool) {
    let line = scene.machines[number].line;
    scene.room.network.set_older(line, older);
    scene.room.network.break_session(line, Duration::ZERO);
    // The sessions are counted nowhere that a test could look: a request is answered by the next.
    scene.room.clock.sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_assemble_is_sent_plain_bytes() {
    let scene = Scene::new(2).await;
    let files = files(20, 5_000);
    store_all(&scene.client(0), &files).await;
    meet_older(&scene, 0, true).await;
    let packed = zip(&files);
    let sent = scene.costs(0, "all.zip", &packed).await;
    assert!(sent > packed.len() as u64 * 9 / 10, "{sent} bytes of {}", packed.len());
    // Against the one container an earlier version makes a delta, too.
    scene.costs(0, "all.tgz", &gzip(&tar(&files))).await;
    assert_eq!(scene.room.network.faults(), [""; 0]);
    // The server is of today again.
    meet_older(&scene, 0, false).await;
    let (some, _) = files.split_at(12);
    let sent = scene.costs(0, "some.zip", &zip(some)).await;
    assert!(sent < 5_000, "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_assemble_reads_plain_bytes_of_what_was_assembled() {
    let scene = Scene::new(2).await;
    let (writer, reader) = (scene.client(0), scene.client(1));
    let files = files(20, 12_000);
    meet_older(&scene, 1, true).await;
    store_all(&writer, &files).await;
    for (number, bytes) in files.iter().enumerate() {
        assert!(read(&reader, &format!("file-{number}")).await == *bytes);
    }
    for (name, packed) in [("all.zip", zip(&files)), ("all.tgz", gzip(&tar(&files)))] {
        let before = scene.traffic(0).0;
        store(&writer, name, &packed).await;
        let sent = scene.traffic(0).0 - before;
        assert!(sent < 5_000, "{name}: {sent} bytes from who assembles");
        let before = scene.traffic(1).1;
        assert!(read(&reader, name).await == packed, "{name} is not as it was");
        let received = scene.traffic(1).1 - before;
        assert!(received > packed.len() as u64 * 9 / 10, "{name}: {received} bytes");
    }
    // What it writes itself, others take apart.
    let again = zip(&files[3..]);
    store(&reader, "again.zip", &again).await;
    assert!(read(&writer, "again.zip").await == again);
    assert_eq!(scene.room.network.faults(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_went_back_to_an_earlier_version_is_sent_nothing_of_what_was_assembled_for_it()
 {
    let scene = Scene::new(1).await;
    let client = scene.client(0);
    let line = scene.machines[0].line;
    let files = files(18, 3_000);
    store_all(&client, &files).await;
    let usual = scene.room.network.conditions(line);
    for (number, some) in files.windows(4).enumerate() {
        let slow = sim::network::Conditions { bytes_a_second: Some(SLOW), ..usual };
        scene.room.network.set_conditions(line, slow);
        let packed = zip(some);
        let name = format!("{number}.zip");
        let breaking = async {
            scene.room.clock.sleep(Duration::from_millis(120 * number as u64)).await;
            scene.room.network.set_conditions(line, usual);
            meet_older(&scene, 0, true).await;
        };
        tokio::join!(store(&client, &name, &packed), breaking);
        assert!(read(&client, &name).await == packed);
        meet_older(&scene, 0, false).await;
    }
    let faults = scene.room.network.faults();
    assert_eq!(faults, [""; 0]);
}
