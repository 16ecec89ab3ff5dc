package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/config"
)

func newValidate(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "validate -c FILE",
		Short:   "Check a configuration file, without connecting to anything",
		Long:    "Reports every finding at once, each with file, line, column and what to do. Exit code 0: usable (warnings may be printed); 2: not.",
		Example: "  outtail validate -c outtail.yaml\n  outtail validate -c outtail.yaml --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := config.Load(c.configFile, os.LookupEnv)
			if asJSON {
				return c.validateJSON(cfg, err)
			}
			if err != nil {
				return err
			}
			for _, w := range cfg.Warnings {
				fmt.Fprintf(c.stderr, "warning: %s\n", w)
			}
			names := make([]string, len(cfg.Pipelines))
			for i, p := range cfg.Pipelines {
				names[i] = fmt.Sprintf("%s (%s to %s)", p.Name, p.Source.Kind, p.Sink.Kind)
			}
			_, err = fmt.Fprintf(c.stdout, "%s: ok: %s\n", c.configFile, strings.Join(names, ", "))
			return err
		},
	}
	c.configFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c *cli) validateJSON(cfg *config.Config, err error) error {
	out := struct {
		Valid    bool            `json:"valid"`
		Findings config.Findings `json:"findings"`
		Warnings config.Findings `json:"warnings"`
	}{Valid: err == nil, Findings: config.Findings{}, Warnings: config.Findings{}}
	if err != nil && !errors.As(err, &out.Findings) {
		return err
	}
	if cfg != nil && cfg.Warnings != nil {
		out.Warnings = cfg.Warnings
	}
	enc := json.NewEncoder(c.stdout)
	enc.SetIndent("", "  ")
	if jerr := enc.Encode(out); jerr != nil {
		return jerr
	}
	if err != nil {
		return silent{err}
	}
	return nil
}
