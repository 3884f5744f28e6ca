//! Where work on the stores is done, which may wait for the disk.

use protocol::Refusal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// Where it is called: for stores in memory, and for a runtime of one thread.
    Inline,
    /// On the runtime's threads for such work.
    Pool,
}

impl Blocking {
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        match self {
            Blocking::Inline => Ok(work()),
            Blocking::Pool => tokio::task::spawn_blocking(work)
                .await
                .map_err(|_| Refusal::Failed("the server is going down".into())),
        }
    }
}
