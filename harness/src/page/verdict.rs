//! The verdict section: the result of a run in one sentence, and key figures.

use super::{
    html::{Html, Text},
    words::{count, counted, listed, number, share, took},
};
use crate::record::{BreachKind, Findings, Run};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Clean,
    /// A run outside the guarantee whose only findings are overlaps and lost updates.
    Expected,
    /// The run has findings that must not occur.
    Found,
    /// No client acquired a lock.
    Empty,
}

impl Verdict {
    pub(super) fn of(run: &Run) -> Self {
        let found = &run.findings;
        // Faults outside the guarantee can only break mutual exclusion.
        let is_exclusion_all =
            Findings { overlaps: Vec::new(), lost_updates: 0, ..found.clone() }.is_clean();
        match (found.is_clean(), run.holds.is_empty()) {
            (false, _) if run.setting.mode == "outside" && is_exclusion_all => Self::Expected,
            (false, _) => Self::Found,
            (true, true) => Self::Empty,
            (true, false) => Self::Clean,
        }
    }

    pub(super) fn words(self, run: &Run) -> String {
        let tenures = counted(number(run.holds.len()), "tenure", "tenures");
        let faults = match number(run.faults.len()) {
            0 => "without faults".into(),
            n => format!("under {}", counted(n, "fault", "faults")),
        };
        match self {
            Self::Clean => format!("No two holders at once in {tenures} {faults}"),
            Self::Expected => {
                format!("Outside the guarantee: {} in {tenures} {faults}", found(&run.findings))
            }
            Self::Found => format!("FINDINGS: {}", found(&run.findings)),
            Self::Empty => "No lock was acquired: this run has no result".into(),
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Clean => {
                "No two tenures of a resource overlap, except those of readers, no semaphore has more holders than \
                 permits, no job ran twice in a period, and each fencing token is higher than the earlier ones. The \
                 other checks have no findings, either."
            }
            Self::Expected => {
                "The faults of this run exceed those that Redlock tolerates, so two clients can hold a \
                 lock at once. This occurred, but there are no fencing violations and no other findings."
            }
            Self::Found => {
                "The findings are listed below. The command at the end of the page repeats the run with the same seed."
            }
            Self::Empty => {
                "No acquire succeeded, or none was attempted, so the absence of findings proves nothing."
            }
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Expected => "expected",
            Self::Found => "found",
            Self::Empty => "empty",
        }
    }

    /// Returns an SVG icon. The icons differ in shape, for readers who cannot distinguish the
    /// colors.
    fn sign(self) -> &'static str {
        match self {
            Self::Clean => "<path d=\"M7 12.5l3.5 3.5L17 9\"/>",
            Self::Expected => "<path d=\"M12 6.5v7M12 17v.5\"/>",
            Self::Found => "<path d=\"M8 8l8 8M16 8l-8 8\"/>",
            Self::Empty => "<path d=\"M7.5 12h9\"/>",
        }
    }
}

fn found(findings: &Findings) -> String {
    let breaches = BreachKind::ALL.map(|kind| {
        let (one, many) = kind.names();
        (kind.count(&findings.breaches), one, many)
    });
    let others = [
        (number(findings.overlaps.len()), "overlap", "overlaps"),
        (findings.lost_updates, "lost update", "lost updates"),
        (findings.late_losses, "loss reported late", "losses reported late"),
        (findings.overdue_calls, "overdue call", "overdue calls"),
        (findings.panics, "panic", "panics"),
        (findings.leaked_tasks, "leaked task", "leaked tasks"),
        (findings.leaked_connections, "leaked connection", "leaked connections"),
        (findings.leaked_keys, "leaked key", "leaked keys"),
        (number(findings.others.len()), "other finding", "other findings"),
    ];
    let (overlaps, others) = others.split_at(1);
    let parts: Vec<_> = [overlaps, &breaches, others]
        .concat()
        .into_iter()
        .filter(|(n, ..)| *n > 0)
        .map(|(n, one, many)| counted(n, one, many))
        .collect();
    listed(&parts)
}

/// Lists the numbers of nodes of the run's parts, such as `1, 3 and 5`.
fn nodes(run: &Run) -> String {
    let nodes: Vec<_> = run.stretches.iter().map(|part| part.nodes.to_string()).collect();
    if nodes.is_empty() { run.setting.nodes.to_string() } else { listed(&nodes) }
}

pub(super) fn section(out: &mut Html, run: &Run) {
    let (verdict, setting) = (Verdict::of(run), &run.setting);
    out.put(format_args!(
        "<header class=\"verdict {class}\">\n<p class=\"kicker\">quorlock torture run, {mode} the \
         guarantee</p>\n<h1><svg viewBox=\"0 0 24 24\" aria-hidden=\"true\">\
         <circle cx=\"12\" cy=\"12\" r=\"11\"/>{sign}</svg><span>{words}</span></h1>\n\
         <p class=\"meaning\">{meaning}</p>\n<dl class=\"figures\">",
        class = verdict.class(),
        mode = Text(&setting.mode),
        sign = verdict.sign(),
        words = Text(verdict.words(run)),
        meaning = verdict.meaning(),
    ));
    let held: u64 = run.holds.iter().map(|hold| hold.until.saturating_sub(hold.from)).sum();
    let whole = setting.lasted.saturating_mul(u64::from(setting.resources));
    out.define("Duration", took(setting.lasted));
    out.define("Tenures", count(number(run.holds.len())));
    out.define("Faults", count(number(run.faults.len())));
    out.define("Calls", count(number(run.calls.len())));
    out.define("Fencing tokens", count(run.fencing.tokens));
    out.define("Late writes refused", count(run.fencing.refused));
    out.define("Nodes", nodes(run));
    out.define("Clients", setting.clients);
    out.define("Resources", setting.resources);
    out.define("Time held", share(held, whole));
    out.raw("</dl>\n</header>\n");
}
