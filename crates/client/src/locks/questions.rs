//! Questions that are under way: they hold the client, and so end with it.

use super::Table;
use model::FileId;

impl Table {
    /// Goes on with a question, whatever becomes of who asks.
    pub fn question(&mut self, asking: impl Future<Output = ()> + Send + 'static) {
        while self.questions.try_join_next().is_some() {}
        self.questions.spawn(asking);
    }

    pub fn end_questions(&mut self) {
        self.questions.abort_all();
    }

    /// It is not known whether a question was answered before the session began that there is now,
    /// or in it: what is held is told anew, and nothing is given before.
    pub fn doubt(&mut self, file: FileId) {
        if let Some(of_file) = self.files.get_mut(&file) {
            of_file.doubt();
        }
    }
}
