package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionLine is what `outtail version` and `outtail --version` print.
func versionLine() string {
	return fmt.Sprintf("outtail %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersion(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  outtail version\n  outtail version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !asJSON {
				return tell(c.stdout, versionLine())
			}
			revision := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						revision = s.Value
					}
				}
			}
			return json.NewEncoder(c.stdout).Encode(map[string]string{
				"version": version, "revision": revision, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
