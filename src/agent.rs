//! The other end of the protocol: this binary on the far end of a byte pipe, local or not.
//!
//! An agent's state is declarative ([`messages::NodeState`]), its work is jobs. It listens on no port and keeps nothing: end of file on
//! the pipe tears everything down, as `Apply(empty)` does.
//!
//! ```text
//! ask   Hello | Probe | Calibrate | Apply | Wake | Status | Prepare | Start | Stop
//! tell  Hello | Facts | Calibration | Applied | Done | Status | Ready | Outcome | Failed
//! ```

pub mod frame;
pub mod messages;
pub mod serve;

pub use serve::serve;
