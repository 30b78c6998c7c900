# Reads the names of source files, one per line, and the execution counts of their lines from the
# file `info`. Prints a table by module and file. With `lines`, also prints the lines that were not
# executed. Called by coverage.sh.
#
# Test code is recognised in the source: an item after `#[cfg(test)]`, up to the brace or semicolon
# that ends the item in a formatted file, and a file whose `mod` is such an item.

BEGIN { read_counts() }

{ files[++known] = $0; read_source($0) }

END {
    for (at = 1; at <= known; at++) {
        if (!(files[at] in is_test_file) && files[at] !~ /_tests\.rs$/) add_up(files[at])
    }
    print_table()
    if (lines != "") print_lines()
}

# A file may have a path through another crate: tests/model/src/../../../src/protocol/mod.rs.
function of_this_crate(path,    at) {
    while (match(path, /[^\/]+\/\.\.\//)) path = substr(path, 1, RSTART - 1) substr(path, RSTART + RLENGTH)
    at = root "/"
    return index(path, at "src/") == 1 ? substr(path, length(at) + 1) : ""
}

function read_counts(    text, file, part) {
    while ((getline text <info) > 0) {
        if (text ~ /^SF:/) file = of_this_crate(substr(text, 4))
        if (file == "" || text !~ /^DA:/) continue
        split(substr(text, 4), part, ",")
        counts[file, part[1]] += part[2]
        last[file] = part[1] + 0 > last[file] ? part[1] + 0 : last[file]
    }
    close(info)
}

function read_source(file,    text, number, inside, indent, path, name) {
    while ((getline text <file) > 0) {
        number++
        if (!inside && text ~ /^ *#\[cfg\(test\)\]/) {
            inside = 1
            path = ""
            match(text, /^ */)
            indent = RLENGTH
        }
        if (!inside) continue
        is_test[file, number] = 1
        if (match(text, /#\[path = "[^"]+"/)) path = substr(text, RSTART + 10, RLENGTH - 11)
        match(text, /^ */)
        if (RLENGTH != indent) continue
        if (match(text, /mod [a-z_]+;/)) {
            name = substr(text, RSTART + 4, RLENGTH - 5) ".rs"
            is_test_file[path == "" ? below(file) name : beside(file) path] = 1
        }
        # An item ends with its closing brace, or on its only line.
        if (text ~ /^ *\}/ || text ~ /[;}]$/) inside = 0
    }
    close(file)
}

function beside(file) {
    sub(/[^\/]*$/, "", file)
    return file
}

# Returns the directory of the modules that a file declares.
function below(file) {
    if (file ~ /\/(mod|lib)\.rs$/) return beside(file)
    sub(/\.rs$/, "/", file)
    return file
}

function module_of(file,    part) {
    return split(file, part, "/") > 2 ? part[1] "/" part[2] : "src"
}

function add_up(file,    number, module) {
    module = module_of(file)
    if (!(module in of_module)) modules[++module_count] = module
    for (number = 1; number <= last[file]; number++) {
        if (!((file, number) in counts) || (file, number) in is_test) continue
        of_file[file]++
        of_module[module]++
        of_all++
        if (counts[file, number] > 0) continue
        missed_file[file]++
        missed_module[module]++
        missed_all++
        missed[file] = missed[file] " " number
    }
    of_module[module] += 0
}

function row(name, all, not_reached) {
    printf "%-36s %7d %11d %8s\n", name, all, not_reached, all ? sprintf("%.1f %%", 100 * (all - not_reached) / all) : "-"
}

function print_table(    which, at, module) {
    printf "%-36s %7s %11s %8s\n", "module, file", "lines", "not reached", "covered"
    for (which = 1; which <= module_count; which++) {
        module = modules[which]
        row(module, of_module[module], missed_module[module])
        for (at = 1; at <= known; at++) {
            if (module_of(files[at]) != module || !of_file[files[at]]) continue
            row("  " substr(files[at], length(module) + 2), of_file[files[at]], missed_file[files[at]])
        }
    }
    row("all", of_all, missed_all)
}

# Prints ranges of lines, each with the text of its first line.
function print_lines(    at, file, count, part, which, from, to, range) {
    for (at = 1; at <= known; at++) {
        file = files[at]
        count = split(missed[file], part, " ")
        if (count) text_of(file)
        for (which = 1; which <= count; which = to + 1) {
            from = to = which
            while (to < count && part[to + 1] == part[to] + 1) to++
            range = part[from] (to > from ? "-" part[to] : "")
            printf "%s:%s: %s\n", file, range, trimmed[part[from]]
        }
    }
}

function text_of(file,    text, number) {
    while ((getline text <file) > 0) {
        sub(/^ */, "", text)
        trimmed[++number] = text
    }
    close(file)
}
