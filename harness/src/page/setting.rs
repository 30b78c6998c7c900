//! The settings section: the settings of a run, and the command that repeats it.

use super::html::{Html, Text};
use crate::record::Setting;

pub(super) fn section(out: &mut Html, setting: &Setting) {
    out.put(format_args!(
        "<section>\n<h2>Repeat the run</h2>\n<div class=\"command\"><pre tabindex=\"0\" \
         aria-label=\"Command\"><code id=\"command\">{}</code></pre>\
         <button type=\"button\" id=\"copy\" hidden>Copy</button></div>\n<dl class=\"setting\">",
        Text(&setting.command)
    ));
    out.define("Seed", setting.seed);
    out.define("Mode", format_args!("{} the guarantee", setting.mode));
    out.define("Server", &setting.server);
    out.define("Library", &setting.library);
    out.define("Machine", &setting.machine);
    out.define("Date", &setting.made_at);
    out.raw("</dl>\n</section>\n");
}
