// Package config turns a YAML file into an immutable Config. It is strict: everything that is not understood is a finding
// with file, line and column, and all findings of a file come at once. A value that was not written has its default,
// set before reading. Nothing is read from the environment but through the function that the caller gives, and references
// (${env:…}, ${file:…}) are resolved inside scalar values after parsing, so that no value can become structure.
//
// The caller turns the sections into the adapters' own options: no adapter imports this package.
package config
