//! The choice of a worker, and the books of what each has in hand.

mod books;
mod line;
mod policy;
mod selection;

use std::cell::RefCell;
use std::rc::Rc;

use warmroute_routing::choose::{Fleet, Policy as _, Prompt, Rule};

use self::books::Books;
use crate::bindings::exports::warmroute::routing::router as wit;
use crate::prefix_index::{Index, State};
use crate::{Component, convert};

/// A router over one index, as the contract has it.
#[derive(Debug)]
pub struct Router(RefCell<Desk>);

/// A router's state.
#[derive(Debug)]
pub(crate) struct Desk {
    index: Rc<RefCell<State>>,
    rule: Rule,
    max_age_ms: Option<u64>,
    booking_life_ms: u64,
    books: Books,
    /// Counts the selections: among equals the choice is spread by it.
    selections: u64,
}

impl wit::Guest for Component {
    type Router = Router;

    fn cost_of(policy: wit::Policy, question: wit::Question) -> wit::Cost {
        let block_size = question.block_size.max(1);
        let prompt = Prompt {
            blocks: u32::try_from(question.prompt_tokens / u64::from(block_size)).unwrap_or(u32::MAX),
            tokens: question.prompt_tokens,
            block_size,
        };
        let fleet = Fleet { least_prefill_tokens: question.least_prefill_tokens };
        let (depths, load) = (convert::depths(&question.depths), convert::load(question.load));
        selection::cost_out(policy::rule(policy).cost(&prompt, &depths, &load, &fleet))
    }
}

impl wit::GuestRouter for Router {
    fn open(index: wit::IndexBorrow<'_>, settings: wit::Settings) -> Result<wit::Router, String> {
        let index = index.get::<Index>().state();
        Ok(wit::Router::new(Self(RefCell::new(Desk::open(index, settings)?))))
    }

    fn select_worker(
        &self,
        request_id: String,
        prompt: wit::Prompt,
        candidates: wit::Candidates,
        options: wit::Options,
    ) -> Result<wit::Selection, wit::Refusal> {
        self.0.borrow_mut().select_worker(request_id, prompt, &candidates, options)
    }

    fn select_line(
        &self,
        request_id: String,
        tokens: String,
        lora: String,
        salt: String,
        candidates: String,
        ranked: u32,
        book: bool,
        now_ms: u64,
    ) -> String {
        let prompt = line::prompt(tokens, lora, salt);
        let options = wit::Options { ranked, book, now_ms };
        let selection = line::candidates(&candidates).and_then(|candidates| {
            self.0.borrow_mut().select_worker(request_id, prompt, &candidates, options)
        });
        line::answer(&selection)
    }

    fn prefill_complete(&self, request_id: String) -> bool {
        self.0.borrow_mut().books.prefill_complete(&request_id)
    }

    fn free(&self, request_id: String) -> bool {
        self.0.borrow_mut().books.free(&request_id)
    }

    fn set_loads(&self, loads: Vec<(wit::Worker, wit::Load)>) {
        let told = loads.into_iter().map(|(worker, load)| ((worker.id, worker.rank), convert::load(load)));
        self.0.borrow_mut().books.tell(told);
    }

    fn loads(&self) -> Vec<(wit::Worker, wit::Load)> {
        self.0.borrow().loads()
    }
}

// === impl Desk ===

impl Desk {
    pub(crate) fn open(index: Rc<RefCell<State>>, settings: wit::Settings) -> Result<Self, String> {
        if settings.booking_life_ms == 0 {
            return Err("booking-life-ms is 0; write how long a request may take, such as 600000".to_owned());
        }
        policy::check(&settings.policy)?;
        Ok(Self {
            index,
            rule: policy::rule(settings.policy),
            max_age_ms: settings.max_age_ms,
            booking_life_ms: settings.booking_life_ms,
            books: Books::default(),
            selections: 0,
        })
    }

    fn loads(&self) -> Vec<(wit::Worker, wit::Load)> {
        let seated = self.index.borrow().seated();
        let load = |worker: wit::Worker| convert::load_out(self.books.load((worker.id, worker.rank)));
        seated.into_iter().map(|seated| (seated.worker, load(seated.worker))).collect()
    }
}
