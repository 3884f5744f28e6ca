//! The task of a mount that drives what goes on by itself.

use crate::exit::{Exit, fail};
use tokio::task::JoinHandle;

/// When what sends, renews leases and listens to the server has ended before the mount: a bug. Without it
/// the mount would seem to work, and nothing would leave it any more.
pub async fn broken_down(driver: &mut JoinHandle<()>) -> anyhow::Error {
    let why = match driver.await {
        Ok(()) => "it came to its end".to_owned(),
        Err(error) => error.to_string(),
    };
    fail(
        Exit::Failure,
        format!(
            "what exchanges changes with the server has broken down, so the mount ends: {why}. What is pending \
             is kept and sent after the next mount; please report this with what the log says"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    #[tokio::test]
    async fn a_mount_whose_driver_breaks_down_is_told_why_it_ends() {
        let mut driver = tokio::spawn(async { panic!("no such row") });
        let error = broken_down(&mut driver).await;
        assert_eq!(exit::code(&error), Exit::Failure);
        assert!(error.to_string().contains("no such row"), "{error}");
    }
}
