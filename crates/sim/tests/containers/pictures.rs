//! Pictures: the rows that the other side has do not travel again, however they are packed.

use crate::packing::{noise, png, rows, zip};
use crate::scene::{Scene, read, store};

const WIDTH: usize = 1200;
const HEIGHT: usize = 800;
/// What libpng puts into one piece of the stream, and what others do.
const PIECE: usize = 8192;
const LARGE_PIECE: usize = 32_768;

/// The same picture with something drawn into a part of it.
fn edited(rows: &[u8]) -> Vec<u8> {
    let mut rows = rows.to_vec();
    for (at, row) in rows.chunks_mut(WIDTH * 3 + 1).enumerate().skip(300).take(80) {
        row[900..1200].copy_from_slice(&noise(at as u64, 300));
    }
    rows
}

#[tokio::test(start_paused = true)]
async fn a_picture_that_was_edited_costs_what_was_drawn() {
    let scene = Scene::new(2).await;
    let old = rows(1, WIDTH, HEIGHT);
    let drawn = 80 * 300;
    store(&scene.client(0), "screen.png", &png(&old, PIECE, b"first")).await;
    let new = png(&edited(&old), PIECE, b"second");
    let sent = scene.costs(0, "screen.png", &new).await;
    assert!(sent < drawn + 12_000, "{sent} bytes of {}", new.len());
}

#[tokio::test(start_paused = true)]
async fn a_picture_that_is_there_by_another_name_costs_what_names_its_rows() {
    let scene = Scene::new(2).await;
    let rows = rows(2, WIDTH, HEIGHT);
    store(&scene.client(0), "screen.png", &png(&rows, PIECE, b"first")).await;
    // Other pieces, and another text in front: not a chunk of the file is the same.
    let other = png(&rows, LARGE_PIECE, b"the same, by another program");
    let sent = scene.costs(0, "copy.png", &other).await;
    assert!(sent < 8_000, "{sent} bytes of {}", other.len());
    let within = zip(&[rows.clone(), noise(3, 500)]);
    let sent = scene.costs(0, "rows.zip", &within).await;
    assert!(sent < 8_000, "{sent} bytes of {}", within.len());
}

#[tokio::test(start_paused = true)]
async fn who_reads_a_picture_of_which_the_rows_are_here_fetches_their_names() {
    let scene = Scene::new(2).await;
    let (writer, reader) = (scene.client(0), scene.client(1));
    let old = rows(4, WIDTH, HEIGHT);
    store(&reader, "mine.png", &png(&old, PIECE, b"")).await;
    let new = png(&edited(&old), LARGE_PIECE, b"edited elsewhere");
    store(&writer, "theirs.png", &new).await;
    let before = scene.traffic(1).1;
    assert!(read(&reader, "theirs.png").await == new);
    let received = scene.traffic(1).1 - before;
    assert!(received < 80 * 300 + 20_000, "{received} bytes of {}", new.len());
}
