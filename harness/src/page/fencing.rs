//! What fencing tokens did: who wrote too late, and whether that was caught.

use super::{
    findings::{holder, more},
    html::Html,
    words::{at, count, counted, number},
};
use crate::record::WIPE;
use crate::record::{Breach, BreachKind, Run};

/// More than anybody reads.
const MOST_LISTED: usize = 50;

pub(super) fn section(out: &mut Html, run: &Run) {
    let fencing = &run.fencing;
    out.raw("<section>\n<h2>Fencing</h2>\n");
    if fencing.tokens == 0 {
        out.raw("<p>No lock was acquired with a fencing token.</p>\n</section>\n");
        return;
    }
    out.raw(
        "<p>A lease can end without its holder noticing: the process may stall between checking the \
         lease and writing. So most locks of this run have a fencing token, a number that increases \
         with every holder. The resource is a cell that stores the highest token seen and refuses \
         lower ones. Some holders deliberately write without a check, or again after the end.</p>\n\
         <dl class=\"figures\">",
    );
    out.define("Tokens", count(fencing.tokens));
    out.define("Had to be higher than an earlier one", count(fencing.ordered));
    out.define("Leases that expired in a stopped process", count(fencing.slept_through));
    out.define("Writes accepted", count(fencing.accepted));
    out.define("Writes after the lease", count(fencing.late));
    out.define("Writes refused", count(fencing.refused));
    out.raw("</dl>\n");
    let refused = BreachKind::HolderRefused.count(&fencing.excused);
    let caught = fencing.refused.saturating_sub(refused);
    out.put(format_args!(
        "<p>{} refused, because a later holder had written. A write after the end of a lease is \
         harmless until a later holder writes, and is accepted until then.</p>\n",
        counted(caught, "late write was", "late writes were"),
    ));
    excused(out, run, refused);
    list(out, &run.findings.breaches);
    out.raw("</section>\n");
}

/// What is no finding, and why.
fn excused(out: &mut Html, run: &Run, refused: u64) {
    if refused > 0 {
        out.put(format_args!(
            "<p>{} refused while the lease was valid: another client held the lock, too. That is \
             possible outside the promise; the cell accepted only the higher token.</p>\n",
            counted(refused, "holder was", "holders were"),
        ));
    }
    let wipes = run.faults.iter().filter(|fault| fault.nemesis == WIPE).count();
    if wipes > 0 {
        let across = number(run.fencing.excused.len()) - refused;
        out.put(format_args!(
            "<p>All nodes lost all data at once {}, including the token counters. Tokens then start again \
             from the wall clock, which all clients of this run share. {} seen across such a loss; \
             these do not count as findings.</p>\n",
            counted(number(wipes), "time", "times"),
            counted(across, "breach was", "breaches were"),
        ));
    }
}

fn list(out: &mut Html, breaches: &[Breach]) {
    if breaches.is_empty() {
        return;
    }
    let all = counted(number(breaches.len()), "breach", "breaches");
    out.put(format_args!("<h3>{all}</h3>\n<ol class=\"overlaps\">\n"));
    for breach in breaches.iter().take(MOST_LISTED) {
        let Breach { kind, first, second, under } = breach;
        let name = kind.names().0;
        out.put(format_args!(
            "<li><h4>Resource {}: {name}</h4><p>at {}</p><dl>",
            first.resource,
            at(second.from)
        ));
        for (term, hold) in [("First holder", first), ("Second holder", second)] {
            let token = hold.token.map_or_else(|| "none".into(), |token| token.to_string());
            let asked = at(hold.asked);
            out.define(term, format_args!("token {token}, asked for at {asked}, {}", holder(hold)));
        }
        let under = if under.is_empty() { "nothing".into() } else { under.join(", ") };
        out.define("Under", under);
        out.raw("</dl></li>\n");
    }
    out.raw("</ol>\n");
    more(out, breaches.len(), MOST_LISTED);
}
