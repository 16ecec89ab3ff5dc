package config

import (
	"go.yaml.in/yaml/v4"
)

// The kinds of nodes that sections look at.
const (
	mapping  = yaml.MappingNode
	sequence = yaml.SequenceNode
	scalar   = yaml.ScalarNode
)

// Load reads a configuration file. The error is an *event.Fault of class Usage whose cause is Findings.
func Load(path string, env Environment) (*Config, error) {
	data, f := readFile(path)
	if f != nil {
		return nil, faultInvalid(path, Findings{*f})
	}
	return Parse(path, data, env)
}

// LoadWithoutSecrets is Load for who asks no database and no broker: passwords stay empty, and what they refer to need not be there.
func LoadWithoutSecrets(path string, env Environment) (*Config, error) {
	data, f := readFile(path)
	if f != nil {
		return nil, faultInvalid(path, Findings{*f})
	}
	return parseWith(&reader{file: path, env: env, noSecrets: true}, data)
}

// Parse reads a configuration that is in memory; file names it in findings.
func Parse(file string, data []byte, env Environment) (*Config, error) {
	return parseWith(&reader{file: file, env: env}, data)
}

func parseWith(r *reader, data []byte) (*Config, error) {
	root, f := parse(r.file, data)
	if f != nil {
		return nil, faultInvalid(r.file, Findings{*f})
	}
	c := &Config{File: r.file}
	c.read(r, field{r: r, value: root}.section())
	if len(r.findings) > 0 {
		r.findings.sort()
		return nil, faultInvalid(r.file, r.findings)
	}
	r.warnings.sort()
	c.Warnings = r.warnings
	return c, nil
}
