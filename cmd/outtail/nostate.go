package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
)

// noState is the finding that data_dir holds no state file, nil where it does. Without it a command that was given in the wrong folder
// would say that there is nothing, which is true of that folder alone.
func noState(op string, cfg *config.Config) error {
	path := filepath.Join(cfg.DataDir, checkpoint.FileName)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // what else keeps the file from being read is told by who opens it
	}
	return &event.Fault{Code: "OT0030", Class: event.Usage, Op: op, Place: path,
		Text: "there is no " + checkpoint.FileName + " in " + absolute(cfg.DataDir),
		Hint: "a relative data_dir is looked for from the folder in which the command runs: give it in the one in which outtail is started, or make data_dir absolute; or nothing has run with it yet"}
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

// nothing says on stderr why an answer is empty: there is no state file, or what is said of one that holds nothing.
func (c *cli) nothing(op string, cfg *config.Config, said string) error {
	if f := event.AsFault(noState(op, cfg)); f != nil {
		return tell(c.stderr, f.Text+"\n  hint: "+f.Hint+"\n")
	}
	return tell(c.stderr, said)
}
