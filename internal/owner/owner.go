// Package owner names the user to whom a path belongs and the one that asks, so that whoever may not use it is told as whom to ask.
package owner

import (
	"os/user"
	"path/filepath"
	"strconv"
)

// Of is the name of the user to whom a path belongs, else its folder; "" where neither can be told.
func Of(path string) string {
	id, ok := idOf(path)
	if !ok {
		id, ok = idOf(filepath.Dir(path))
	}
	if !ok {
		return ""
	}
	text := strconv.FormatUint(uint64(id), 10)
	if u, err := user.LookupId(text); err == nil {
		return u.Username
	}
	return "'#" + text + "'" // as sudo -u takes it from a shell
}

// Me is the name of the user that asks.
func Me() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

// Sudo is how a command is given as the user to whom a path belongs.
func Sudo(path string) string {
	if of := Of(path); of != "" && of != Me() {
		return "sudo -u " + of + " outtail … (" + path + " belongs to " + of + ", and this is " + Me() + ")"
	}
	return "sudo -u USER outtail …"
}
