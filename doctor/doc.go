// Package doctor looks at the servers of a pipeline while nothing runs, or while everything does, and says what it found,
// why it matters, and the statement or command that repairs it. It says what a start would stop for, and what a start
// does not look at: settings that cost events later, room that is about to run out, how long the log still lasts.
//
// It changes nothing on any server. Each kind of server has a struct of facts, a thin collector that fills it
// (…collect.go), and judges that are functions of the facts alone (…judge.go). What the user may not see becomes a note
// that says so, never a failure: no check needs a superuser.
package doctor
