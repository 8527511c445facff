//! `tcp-rr`: a request and a response at a time on one connection, without delay (`TCP_NODELAY`).

use std::io::Read;
use std::sync::Arc;

use socket2::Socket;

use super::control::{Bounds, Control, Worker, join_all};
use super::histogram::Recorder;
use super::job::{Buffers, Job, Role};
use super::outcome::{Counts, Latency, Outcome, Sampling, TcpSummary, Window};
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
    let finish = Box::new(move |_: &Control| {
        let mut outcomes = join_all(vec![worker])?;
        outcomes.pop().ok_or_else(|| TrafficError::Panicked { thread: "tcp-rr".to_owned() })
    });
    Ok(Opened { ports, finish })
}

/// Answers until the client closes.
fn serve(
    control: &Control,
    job: &Job,
    socket: &Socket,
    request: usize,
    response: usize,
) -> Result<Outcome, TrafficError> {
    sockets::verify_congestion_control(job, socket)?;
    socket.set_tcp_nodelay(true).map_err(failed("TCP_NODELAY"))?;
    let (mut incoming, outgoing) = (vec![0; request], vec![0x5a; response]);
    let mut answered = 0;
    while receive(control, socket, &mut incoming)? && send(control, socket, &outgoing)? {
        answered += 1;
    }
    if answered == 0 {
        return Err(TrafficError::NothingArrived { what: "the first request".to_owned(), waited: control.elapsed() });
    }
    let counts = Counts { transactions: Some(answered), ..Counts::default() };
    Ok(Outcome { cautions: control.strangers().into_iter().collect(), ..finish(job, socket, None, counts)? })
}

/// Asks until the window is over.
fn ask(
    control: &Control,
    job: &Job,
    socket: &Socket,
    request: usize,
    response: usize,
) -> Result<Outcome, TrafficError> {
    sockets::verify_congestion_control(job, socket)?;
    socket.set_tcp_nodelay(true).map_err(failed("TCP_NODELAY"))?;
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
        return Err(TrafficError::NothingArrived {
            what: "an answer within the measured window".to_owned(),
            waited: control.elapsed(),
        });
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
        latency: Some(Latency { sampling: Sampling::ClosedLoop, histogram: latencies.finish() }),
        tcp: vec![tcp],
        ..finish(job, socket, Some(window(control, bounds)), counts)?
    })
}

fn window(control: &Control, bounds: Bounds) -> Window {
    Window {
        first_byte_after_ns: bounds.first_ns.saturating_sub(control.started_ns()),
        warmup_ns: bounds.begin_ns - bounds.first_ns,
        length_ns: bounds.end_ns - bounds.begin_ns,
    }
}

fn finish(job: &Job, socket: &Socket, window: Option<Window>, counts: Counts) -> Result<Outcome, TrafficError> {
    Ok(Outcome {
        role: job.role,
        kind: job.kind.name().to_owned(),
        direction: job.direction,
        window,
        counts,
        streams: Vec::new(),
        series: None,
        gaps: Vec::new(),
        latency: None,
        probe: None,
        conditions: sockets::conditions(job, socket, Buffers::default()),
        tcp: Vec::new(),
        cautions: Vec::new(),
    })
}

/// Fills `buffer`; false if the connection ends.
fn receive(control: &Control, socket: &Socket, buffer: &mut [u8]) -> Result<bool, TrafficError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match { socket }.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(false),
            Ok(count) => filled += count,
            Err(error) if sockets::is_end(&error) => return Ok(false),
            Err(error) if sockets::is_tick(&error) => {
                if control.stopped() {
                    return Ok(false);
                }
                control.may_go_on(|| "the next message".to_owned())?;
            }
            Err(error) => return Err(failed("receiving")(error)),
        }
    }
    Ok(true)
}

/// Sends all of `bytes`; false if the connection ends.
fn send(control: &Control, socket: &Socket, bytes: &[u8]) -> Result<bool, TrafficError> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.send_with_flags(&bytes[sent..], libc::MSG_NOSIGNAL) {
            Ok(count) => sent += count,
            Err(error) if sockets::is_end(&error) => return Ok(false),
            Err(error) if sockets::is_tick(&error) => {
                control.may_go_on(|| "room for the next message".to_owned())?;
            }
            Err(error) => return Err(failed("sending")(error)),
        }
    }
    Ok(true)
}
