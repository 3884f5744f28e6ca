//! What only the server has, inside containers that others have stored, does not travel to it
//! again.

use crate::packing::{files, gzip, tar, zip};
use crate::scene::{Scene, read, store};
use sim::machine::End;
use std::time::Duration;

/// The server looks into what was stored while nobody asks for anything.
const A_WHILE: Duration = Duration::from_secs(60);
const AT_ONCE: Duration = Duration::from_secs(1);

/// Bytes that are sent to store these files one by one.
async fn unpacked(scene: &Scene, number: usize, files: &[Vec<u8>]) -> u64 {
    let mut sent = 0;
    for (at, bytes) in files.iter().enumerate() {
        sent += scene.costs(number, &format!("file-{at}"), bytes).await;
    }
    sent
}

#[tokio::test(start_paused = true)]
async fn files_of_an_archive_of_somebody_else_s_cost_what_names_them() {
    for (count, bytes) in [(6, 60_000), (30, 4_000)] {
        let scene = Scene::new(2).await;
        let files = files(count, bytes);
        let packed = gzip(&tar(&files));
        store(&scene.client(0), "all.tgz", &packed).await;
        scene.room.clock.sleep(A_WHILE).await;
        // It makes no difference whether who unpacks it has read it here.
        if count == 6 {
            assert!(read(&scene.client(1), "all.tgz").await == packed);
        }
        let sent = unpacked(&scene, 1, &files).await;
        assert!(sent < 500 * count, "{count} files: {sent} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn an_archive_of_archives_of_somebody_else_s_costs_what_names_its_parts() {
    let scene = Scene::new(2).await;
    let files = files(30, 5_000);
    let (some, others) = files.split_at(12);
    store(&scene.client(0), "some.zip", &zip(some)).await;
    store(&scene.client(0), "others.tgz", &gzip(&tar(others))).await;
    scene.room.clock.sleep(A_WHILE).await;
    let packed = zip(&files);
    let sent = scene.costs(1, "all.zip", &packed).await;
    assert!(sent < 8_000, "{sent} bytes of {}", packed.len());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_starts_again_looks_at_what_it_had_not_yet_looked_at() {
    let mut scene = Scene::new(2).await;
    let files = files(6, 30_000);
    store(&scene.client(0), "all.tgz", &gzip(&tar(&files))).await;
    scene.origin.stop(End::Killed, AT_ONCE);
    scene.origin.restart().unwrap();
    scene.room.clock.sleep(A_WHILE).await;
    let sent = unpacked(&scene, 1, &files).await;
    assert!(sent < 5_000, "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn contents_that_are_nowhere_are_hardly_ever_asked_about() {
    let scene = Scene::new(1).await;
    let files = files(32, 8_000);
    let before = scene.room.trace.lines().len();
    unpacked(&scene, 0, &files).await;
    let lines = scene.room.trace.lines().split_off(before);
    let asked = lines.iter().filter(|line| line.contains(">origin Put")).count();
    assert!(asked <= 3, "{asked} of {} files", files.len());
}
