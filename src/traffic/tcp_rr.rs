//! `tcp-rr`: a request and a response at a time on one connection, without delay (`TCP_NODELAY`).

use std::sync::Arc;

use socket2::Socket;

use super::control::{Control, Worker, both};
use super::histogram::Recorder;
use super::job::{Buffers, Job, Role};
use super::messages::{receive, send};
use super::outcome::{Conditions, Counts, Latency, Outcome, Sampling, TcpSummary};
use super::sockets::{self, failed};
use super::{Opened, TrafficError};
use crate::sys::clock;
use crate::sys::tcp_info::TcpInfo;
use crate::units::Bytes;

pub(super) fn open(job: &Job, control: &Arc<Control>, request: Bytes, response: Bytes) -> Result<Opened, TrafficError> {
    let (request, response) = (request.get() as usize, response.get() as usize);
    let owned = job.clone();
    let (ports, worker) = match job.role {
        Role::Server => {
            let listener = Arc::new(sockets::listen(job, 1, Buffers::default())?);
            control.watch(&listener);
            let ports = vec![sockets::port(&listener)?];
            let work = move |control: &Control| {
                let (socket, _) = sockets::accept(control, &owned, &listener)?;
                serve(control, &owned, &socket, request, response)
            };
            (ports, Worker::spawn(control, "tcp-rr", work)?)
        }
        Role::Client => {
            let socket = Arc::new(sockets::connect(job, 0, 0, Buffers::default())?);
            control.watch(&socket);
            let work = move |control: &Control| ask(control, &owned, &socket, request, response);
            (Vec::new(), Worker::spawn(control, "tcp-rr", work)?)
        }
    };
    let guard = Worker::spawn(control, "rr-guard", |control| {
        control.guard();
        Ok(())
    })?;
    let finish = Box::new(move |control: &Control| {
        let outcome = worker.join();
        control.finish();
        both(outcome, guard.join()).map(|(outcome, ())| outcome)
    });
    Ok(Opened { ports, finish })
}

/// Makes a connection one of requests and responses, and says under which conditions it is.
fn without_delay(job: &Job, socket: &Socket) -> Result<Conditions, TrafficError> {
    sockets::verify_congestion_control(job, socket)?;
    socket.set_tcp_nodelay(true).map_err(failed("TCP_NODELAY"))?;
    sockets::no_tick(socket)?;
    Ok(sockets::conditions(job, socket, Buffers::default()))
}

/// Answers until the client closes.
fn serve(
    control: &Control,
    job: &Job,
    socket: &Socket,
    request: usize,
    response: usize,
) -> Result<Outcome, TrafficError> {
    let at_first = without_delay(job, socket)?;
    let (mut incoming, outgoing) = (vec![0; request], vec![0x5a; response]);
    let mut answered = 0;
    while receive(control, socket, &mut incoming)? && send(control, socket, &outgoing)? {
        answered += 1;
    }
    if answered == 0 {
        return Err(control.nothing_arrived("the first request"));
    }
    Ok(Outcome {
        counts: Counts { transactions: Some(answered), ..Counts::default() },
        conditions: sockets::conditions(job, socket, Buffers::default()).or(at_first),
        cautions: control.strangers().into_iter().collect(),
        ..Outcome::new(job)
    })
}

/// Asks until the window is over.
fn ask(
    control: &Control,
    job: &Job,
    socket: &Socket,
    request: usize,
    response: usize,
) -> Result<Outcome, TrafficError> {
    let at_first = without_delay(job, socket)?;
    let (outgoing, mut incoming) = (vec![0xa5; request], vec![0; response]);
    let mut latencies = Recorder::new();
    let mut transactions = 0;
    let mut at_begin = None;
    let mut asked_ns = clock::now_ns();
    let bounds = control.window.open(asked_ns);
    loop {
        let whole = send(control, socket, &outgoing)? && receive(control, socket, &mut incoming)?;
        let answered_ns = clock::now_ns();
        if !whole {
            control.may_go_on(|| "the end of the measured window".to_owned())?;
            return Err(TrafficError::EndedEarly { what: "the connection".to_owned(), after: control.elapsed() });
        }
        if bounds.contains(answered_ns) {
            transactions += 1;
            if bounds.contains(asked_ns) {
                latencies.record(answered_ns - asked_ns);
            }
            if at_begin.is_none() {
                at_begin = Some(TcpInfo::read(socket).map_err(failed("reading TCP_INFO"))?);
            }
        }
        if answered_ns >= bounds.end_ns {
            break;
        }
        asked_ns = answered_ns;
    }
    if transactions == 0 {
        return Err(control.nothing_arrived("an answer within the measured window"));
    }
    let end = TcpInfo::read(socket).map_err(failed("reading TCP_INFO"))?;
    let tcp = TcpSummary { start: at_begin, end };
    let counts = Counts {
        transactions: Some(transactions),
        retransmitted_segments: Some(u64::from(
            end.total_retrans.saturating_sub(at_begin.map_or(0, |start| start.total_retrans)),
        )),
        ..Counts::default()
    };
    Ok(Outcome {
        window: Some(control.whole_window(bounds)),
        counts,
        latency: Some(Latency { sampling: Sampling::ClosedLoop, histogram: latencies.finish(), unanswered: 0 }),
        conditions: sockets::conditions(job, socket, Buffers::default()).or(at_first),
        tcp: vec![tcp],
        ..Outcome::new(job)
    })
}
