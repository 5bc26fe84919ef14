package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/cli/kuberc"
	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
)

func newKuberc(f *Factory) *cobra.Command {
	return group("kuberc", "Manage kuberc configuration files", newKubercView(f, runKubercView), newKubercSet(f, runKubercSet))
}

// kubercViewOptions are the flags of kuberc view.
type kubercViewOptions struct {
	*Factory
	printing
	File string // of --kuberc
}

func newKubercView(f *Factory, run func(context.Context, *kubercViewOptions) error) *cobra.Command {
	o := &kubercViewOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "view", Short: "Display the current kuberc configuration", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.File = cmd.Flags().Lookup("kuberc").Value.String()
			return run(cmd.Context(), o)
		},
	}
	o.printingFlags(cmd, "print the preferences: ", "yaml")
	return cmd
}

func runKubercView(_ context.Context, o *kubercViewOptions) error {
	path, _, err := kuberc.Path(o.File)
	if err != nil {
		return err
	}
	p, warning, err := kuberc.Load(o.File)
	switch {
	case err != nil:
		return err
	case p == nil && warning != "":
		return errors.New(warning)
	case p == nil:
		return fmt.Errorf("kuberc file not found at %s", path)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return err
	}
	printer, err := output.New(o.options())
	if err != nil {
		return err
	}
	return printer.Print(o.Out, &rest.Object{Object: content})
}

// kubercSetOptions are the flags of kuberc set.
type kubercSetOptions struct {
	*Factory
	File            string // of --kuberc
	Root            *cobra.Command
	Section         string
	Command, Name   string
	Options         []string
	Prepend, Append []string
	Policy          string
	Allowed         []string
	Overwrite       bool
}

// sectionFlags are the flags of each section; kubercSetOptions refuses all others.
var sectionFlags = map[string][]string{
	"defaults":         {"command", "option"},
	"aliases":          {"command", "name", "option", "prependarg", "appendarg"},
	"credentialplugin": {"policy", "allowlist-entry"},
}

func newKubercSet(f *Factory, run func(context.Context, *kubercSetOptions) error) *cobra.Command {
	o := &kubercSetOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "set --section=defaults|aliases|credentialplugin",
		Short: "Set values in the kuberc configuration",
		Example: `  podium kuberc set --section=defaults --command=get --option=output=wide
  podium kuberc set --section=aliases --name=getn --command=get --prependarg=nodes
  podium kuberc set --section=credentialplugin --policy=DenyAll`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.File, o.Root = cmd.Flags().Lookup("kuberc").Value.String(), cmd.Root()
			if err := o.check(cmd); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Section, "section", "", "section to change: defaults, aliases or credentialplugin")
	fs.StringVar(&o.Command, "command", "", "command whose flags get default values, or that an alias runs")
	fs.StringVar(&o.Name, "name", "", "name of the alias")
	fs.StringArrayVar(&o.Options, "option", nil, "default value of a flag, as FLAG=VALUE; may be repeated")
	fs.StringArrayVar(&o.Prepend, "prependarg", nil, "argument of the alias before those of the user; may be repeated")
	fs.StringArrayVar(&o.Append, "appendarg", nil, "argument of the alias after those of the user; may be repeated")
	fs.StringVar(&o.Policy, "policy", "", "which credential plugins may run: AllowAll, DenyAll or Allowlist")
	fs.StringArrayVar(&o.Allowed, "allowlist-entry", nil, "credential plugin that the policy Allowlist allows, as command=NAME or name=NAME; may be repeated")
	fs.BoolVar(&o.Overwrite, "overwrite", false, "allow existing entries to be overwritten")
	_ = cmd.MarkFlagRequired("section")
	return cmd
}

// check reports flags that the section does not have, and those that it lacks.
func (o *kubercSetOptions) check(cmd *cobra.Command) error {
	has, ok := sectionFlags[o.Section]
	if !ok {
		return fmt.Errorf("--section=%q: use defaults, aliases or credentialplugin", o.Section)
	}
	for _, flags := range sectionFlags {
		for _, name := range flags {
			if cmd.Flags().Changed(name) && !slices.Contains(has, name) {
				return fmt.Errorf("--%s is not for --section=%s", name, o.Section)
			}
		}
	}
	switch {
	case o.Section == "credentialplugin" && o.Policy == "":
		return errors.New("--policy is required for --section=credentialplugin")
	case o.Section == "credentialplugin":
		return nil
	case o.Command == "":
		return fmt.Errorf("--command is required for --section=%s", o.Section)
	case o.Section == "aliases" && o.Name == "":
		return errors.New("--name is required for --section=aliases")
	case o.Section == "defaults" && len(o.Options) == 0:
		return errors.New("at least one --option is required for --section=defaults")
	}
	return nil
}

func runKubercSet(_ context.Context, o *kubercSetOptions) error {
	path, _, err := kuberc.Path(o.File)
	if err != nil {
		return err
	}
	if path == "" {
		return errors.New("there is no home directory: name the file with --kuberc")
	}
	p, err := kuberc.Open(path)
	if err != nil {
		return err
	}
	if err := o.apply(p); err != nil {
		return err
	}
	if err := p.Write(path); err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.Out, "Updated", path)
	return err
}

// apply changes the preferences.
func (o *kubercSetOptions) apply(p *kuberc.Preference) error {
	if o.Section == "credentialplugin" {
		allowed, err := pluginEntries(o.Allowed)
		if err != nil {
			return err
		}
		return p.SetPlugins(o.Policy, allowed, o.Overwrite)
	}
	options, err := o.options()
	if err != nil {
		return err
	}
	if o.Section == "defaults" {
		return p.SetDefaults(kuberc.Defaults{Command: o.Command, Options: options}, o.Overwrite)
	}
	if builtIn(o.Root, []string{o.Name}) != nil {
		return fmt.Errorf("%q is a command: an alias needs another name", o.Name)
	}
	return p.SetAlias(kuberc.Alias{Name: o.Name, Command: o.Command, PrependArgs: o.Prepend, AppendArgs: o.Append, Options: options}, o.Overwrite)
}

// options returns the values of --option, which must be flags of the command.
func (o *kubercSetOptions) options() (out []kuberc.Option, err error) {
	cmd := builtIn(o.Root, strings.Fields(o.Command))
	if cmd == nil {
		return nil, fmt.Errorf("unknown command %q", o.Command)
	}
	for _, text := range o.Options {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--option=%s: want FLAG=VALUE", text)
		}
		if cmd.Flag(name) == nil {
			return nil, fmt.Errorf("the command %q has no flag --%s", o.Command, name)
		}
		out = append(out, kuberc.Option{Name: name, Default: value})
	}
	return out, nil
}

func pluginEntries(texts []string) (out []kuberc.PluginEntry, err error) {
	for _, text := range texts {
		field, value, _ := strings.Cut(text, "=")
		switch {
		case value != "" && field == "command":
			out = append(out, kuberc.PluginEntry{Command: value})
		case value != "" && field == "name":
			out = append(out, kuberc.PluginEntry{Name: value})
		default:
			return nil, fmt.Errorf("--allowlist-entry=%s: want command=NAME or name=NAME", text)
		}
	}
	return out, nil
}
