//! What the two sides know of each other's files and containers does not travel again.

use crate::packing::{files, gzip, noise, tar, text, zip};
use crate::scene::{Scene, read, store, store_all, told};

#[tokio::test(start_paused = true)]
async fn an_archive_of_files_that_are_there_costs_what_names_them() {
    let scene = Scene::new(1).await;
    let client = scene.client(0);
    let files = files(30, 4_000);
    store_all(&client, &files).await;
    for (name, packed) in [("all.zip", zip(&files)), ("all.tgz", gzip(&tar(&files)))] {
        let sent = scene.costs(0, name, &packed).await;
        assert!(sent < 5_000, "{name}: {sent} bytes of {}", packed.len());
    }
    let told = told(&client, "all.zip").await;
    assert!(told.contains("30 parts of it as contents of their own"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn who_knows_nothing_of_the_files_asks_for_them() {
    let scene = Scene::new(2).await;
    let files = files(30, 6_000);
    store_all(&scene.client(0), &files).await;
    for (name, packed) in [("all.zip", zip(&files)), ("all.tgz", gzip(&tar(&files)))] {
        let sent = scene.costs(1, name, &packed).await;
        assert!(sent < 8_000, "{name}: {sent} bytes of {}", packed.len());
    }
}

#[tokio::test(start_paused = true)]
async fn archives_that_are_put_together_of_others_cost_what_names_their_parts() {
    let scene = Scene::new(2).await;
    let files = files(30, 5_000);
    let (some, others) = files.split_at(12);
    store(&scene.client(0), "some.zip", &zip(some)).await;
    store(&scene.client(0), "others.tgz", &gzip(&tar(others))).await;
    for (name, packed) in [("all.zip", zip(&files)), ("all.tgz", gzip(&tar(&files)))] {
        let sent = scene.costs(0, name, &packed).await;
        assert!(sent < 6_000, "{name}: {sent} bytes of {}", packed.len());
    }
    let told = told(&scene.client(0), "all.zip").await;
    assert!(told.contains("in other containers"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn what_is_unpacked_beside_its_archive_costs_little() {
    let scene = Scene::new(2).await;
    let files = files(6, 60_000);
    store(&scene.client(0), "all.tgz", &gzip(&tar(&files))).await;
    for (number, bytes) in files.iter().enumerate() {
        let sent = scene.costs(0, &format!("file-{number}"), bytes).await;
        assert!(sent < 1_500, "{sent} bytes of {}", bytes.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_archive_with_a_change_in_one_member_costs_little() {
    let scene = Scene::new(2).await;
    // What does not deflate takes no time to.
    let mut files: Vec<Vec<u8>> = (0..12).map(|number| noise(number, 500_000)).collect();
    files[5] = text(5, 900_000);
    let old = zip(&files);
    assert!(old.len() > 5 << 20, "more than can be unpacked at once: {}", old.len());
    let client = scene.client(0);
    store(&client, "all.zip", &old).await;
    files[5].splice(600_000..600_000, *b"a few words more ");
    let new = zip(&files);
    let sent = scene.costs(0, "all.zip", &new).await;
    assert!(sent < 30_000, "{sent} bytes of {}", new.len());
}

#[tokio::test(start_paused = true)]
async fn who_reads_an_archive_of_files_that_are_here_fetches_what_names_them() {
    let scene = Scene::new(2).await;
    let (writer, reader) = (scene.client(0), scene.client(1));
    let files = files(30, 12_000);
    store_all(&writer, &files).await;
    for (number, bytes) in files.iter().enumerate() {
        assert!(read(&reader, &format!("file-{number}")).await == *bytes);
    }
    for (name, packed) in [("all.zip", zip(&files)), ("all.tgz", gzip(&tar(&files)))] {
        store(&writer, name, &packed).await;
        let before = scene.traffic(1).1;
        assert!(read(&reader, name).await == packed);
        let received = scene.traffic(1).1 - before;
        assert!(received < 12_000, "{name}: {received} bytes of {}", packed.len());
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_files_of_an_archive_that_is_here_fetches_their_names() {
    let scene = Scene::new(2).await;
    let (writer, reader) = (scene.client(0), scene.client(1));
    let files = files(4, 150_000);
    let packed = gzip(&tar(&files));
    store(&reader, "all.tgz", &packed).await;
    store_all(&writer, &files).await;
    let before = scene.traffic(1).1;
    for (number, bytes) in files.iter().enumerate() {
        assert!(read(&reader, &format!("file-{number}")).await == *bytes);
    }
    let received = scene.traffic(1).1 - before;
    assert!(received < 15_000, "{received} bytes");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_assembled_there_travels_by_itself() {
    let scene = Scene::new(2).await;
    let files = files(20, 6_000);
    store_all(&scene.client(0), &files).await;
    scene.room.network.lose_deltas();
    let packed = zip(&files);
    let sent = scene.costs(0, "all.zip", &packed).await;
    assert!(sent > packed.len() as u64, "{sent} bytes of {}", packed.len());
}
