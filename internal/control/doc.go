// Package control lets commands ask the running process: HTTP with JSON over the unix socket outtail.sock in data_dir,
// for outtail's user only (0600). The process that runs has the state file locked, so whoever wants to know something
// asks here, and opens the file only when nobody answers.
//
// A request is POST /v1/NAME with a JSON body; the answer is {"result": …} or {"fault": {…}}, where a fault keeps its
// code, class, text and hint, so that a command prints and exits as if it had met it itself. Every wait has an end: a
// process that was stopped, or hangs, costs a command seconds and a clear fault.
package control
