package demo

import (
	"io"
	"os"
	"strconv"
	"time"
)

// Options is what a demo run is told. The zero value of a field means its default.
type Options struct {
	// Rate is how many orders per second the service tries to commit (DEMO_RATE, default 200).
	Rate int
	// Duration ends the run by itself; 0 runs until it is interrupted (DEMO_SECONDS).
	Duration time.Duration
	// KillEvery is how long each life of outtail lasts (DEMO_KILL_SECONDS, default 15 s).
	KillEvery time.Duration
	// Repository is the only Maven repository to ask (OUTTAIL_MAVEN); empty: those of repositories().
	Repository string
	// PostgresBin is a folder with initdb and postgres to use instead of fetching (DEMO_POSTGRES).
	PostgresBin string
	// Binary is the outtail executable; empty: the running one.
	Binary string
	// Out is where screen and verdict go (default standard output), Notes where the way up is told (default standard error).
	Out, Notes io.Writer
	// Getenv reads the environment (default os.Getenv).
	Getenv func(string) string
}

// FromEnv reads Options from the environment. An unusable value is a fault OT9001.
func FromEnv(getenv func(string) string) (Options, error) {
	o := Options{
		Repository: getenv("OUTTAIL_MAVEN"), PostgresBin: getenv("DEMO_POSTGRES"), Getenv: getenv,
	}
	var err error
	if o.Rate, err = positive(getenv, "DEMO_RATE", 20_000); err != nil {
		return Options{}, err
	}
	seconds, err := positive(getenv, "DEMO_SECONDS", 7*24*3600)
	if err != nil {
		return Options{}, err
	}
	o.Duration = time.Duration(seconds) * time.Second
	if seconds, err = positive(getenv, "DEMO_KILL_SECONDS", 3600); err != nil {
		return Options{}, err
	}
	o.KillEvery = time.Duration(seconds) * time.Second
	return o, nil
}

// positive reads a whole number between 1 and limit; 0 where the variable is not set.
func positive(getenv func(string) string, name string, limit int) (int, error) {
	text := getenv(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > limit {
		return 0, settingFault(name, text, "a whole number from 1 to "+strconv.Itoa(limit))
	}
	return n, nil
}

func (o Options) withDefaults() Options {
	if o.Rate == 0 {
		o.Rate = 200
	}
	if o.KillEvery == 0 {
		o.KillEvery = 15 * time.Second
	}
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.Notes == nil {
		o.Notes = os.Stderr
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	return o
}

// topic is where the orders go.
const topic = "orders.created"
