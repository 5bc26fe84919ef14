package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"podium/pkg/cli/output"
)

// printing are the flags of commands that print objects.
type printing struct {
	Format         string // of -o
	Template       string
	ManagedFields  bool
	LenientMissing bool
	unless         string // the default of -o, which --template replaces
}

// printingFlags adds the flags. usage says what -o does, before the formats.
func (p *printing) printingFlags(cmd *cobra.Command, usage, value string) {
	fs := cmd.Flags()
	p.unless = value
	fs.StringVarP(&p.Format, "output", "o", value, usage+output.Formats)
	fs.StringVar(&p.Template, "template", "", "template string, or path to a template file with -o go-template-file; without -o, a Go template")
	fs.BoolVar(&p.ManagedFields, "show-managed-fields", false, "keep managedFields when printing objects in JSON or YAML")
	fs.BoolVar(&p.LenientMissing, "allow-missing-template-keys", true, "ignore errors in templates when a field or map key is missing")
}

// format returns the value of -o, with --template as its argument.
func (p *printing) format() string {
	switch {
	case p.Template == "":
		return p.Format
	case p.Format == p.unless:
		return "go-template=" + p.Template
	case strings.Contains(p.Format, "=") || slices.Contains([]string{"json", "yaml", "kyaml", "name", "wide"}, p.Format):
		return p.Format
	}
	return p.Format + "=" + p.Template
}

// options returns how to print. The format is "" if the flags name none.
func (p *printing) options() output.Options {
	return output.Options{Format: p.format(), ManagedFields: p.ManagedFields, StrictMissing: !p.LenientMissing}
}
