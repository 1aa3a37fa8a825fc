//! The loop that ties the stages together: changes in, Transactions out, again until they hold.
//!
//! [`Reconciler`] is one step of it, without clocks or channels, and works on the fake as well;
//! [`serve`] gives it both. It keeps no state that the model or the planner has.

mod reconciler;
mod report;
mod serve;

pub use reconciler::Reconciler;
pub use report::Report;
pub use serve::{Inputs, serve};
