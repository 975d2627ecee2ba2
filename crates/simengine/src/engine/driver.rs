//! The task that lets model time pass.

use super::Engine;

impl Engine {
    /// Does what is due when it is due. Never ends; abort its task to stop it.
    pub(crate) async fn drive(&self) {
        loop {
            let next = self.lock().0.scheduler.next_due();
            let changed = self.changed.notified();
            match next {
                Some(due) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(self.started + due) => {}
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
        }
    }
}
