// Command outtail is a CDC outbox connector: it tails the MySQL/MariaDB binlog or the Postgres WAL and turns inserts into
// outbox tables into broker messages.
package main

import (
	"context"
	"fmt"
	"os"
)

// version is set at build time: -ldflags "-X main.version=v1.2.3".
var version = "v0.1.0-dev"

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and gives its exit code (contract: exit codes). Tests call it.
func execute(ctx context.Context, args []string, stdout, stderr *os.File) int {
	c := &cli{stdout: stdout, stderr: stderr}
	root := newRoot(c)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !c.began {
		err = usageError{fmt.Errorf("%w\n  hint: %s --help", err, cmd.CommandPath())}
	}
	pipeline := "P"
	if named := cmd.Flags().Lookup("pipeline"); named != nil && named.Value.String() != "" {
		pipeline = named.Value.String()
	}
	return report(stderr, c.exact(err, pipeline))
}
