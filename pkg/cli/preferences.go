package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podium/pkg/cli/kuberc"
)

// preferences applies the user's kuberc to a command line.
type preferences struct {
	*kuberc.Preference
	warn func(string)
}

// prefer reads the kuberc and returns the command line with an alias replaced. Default
// values take effect when the command runs: for the flags that are not given.
func (f *Factory) prefer(root *cobra.Command, args []string) ([]string, error) {
	warn := func(text string) { fmt.Fprintln(f.IO.Err, "Warning:", text) }
	p, warning, err := kuberc.Load(flagIn(args, "--kuberc"))
	if warning != "" {
		warn(warning)
	}
	if err != nil || p == nil {
		return args, err
	}
	u := preferences{p, warn}
	args, alias, err := u.expand(root, args)
	if err != nil {
		return nil, err
	}
	start := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if err := u.applyDefaults(cmd, alias); err != nil {
			return err
		}
		return start(cmd, args)
	}
	return args, nil
}

// flagIn returns the value of a flag in a command line that is not parsed yet.
func flagIn(args []string, name string) string {
	for i, arg := range args {
		switch {
		case arg == "--":
			return ""
		case arg == name && i+1 < len(args):
			return args[i+1]
		case strings.HasPrefix(arg, name+"="):
			return arg[len(name)+1:]
		}
	}
	return ""
}

// expand replaces an alias by its command and arguments. It returns nil if the command
// is none.
func (u preferences) expand(root *cobra.Command, args []string) ([]string, *kuberc.Alias, error) {
	at := firstWord(root.PersistentFlags(), args)
	if at < 0 {
		return args, nil, nil
	}
	i := slices.IndexFunc(u.Aliases, func(a kuberc.Alias) bool { return a.Name == args[at] })
	if i < 0 {
		return args, nil, nil
	}
	alias := &u.Aliases[i]
	if builtIn(root, []string{alias.Name}) != nil {
		u.warn(fmt.Sprintf("Setting alias %q to a built-in command is not supported", alias.Name))
		return args, nil, nil
	}
	words := strings.Fields(alias.Command)
	if builtIn(root, words) == nil {
		return nil, nil, fmt.Errorf("kuberc: command %q not found to set alias %q", alias.Command, alias.Name)
	}
	return slices.Concat(args[:at], words, alias.PrependArgs, args[at+1:], alias.AppendArgs), alias, nil
}

// firstWord returns the index of the first argument that is neither a flag nor the
// value of one, -1 if there is none.
func firstWord(flags *pflag.FlagSet, args []string) int {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !strings.HasPrefix(arg, "-") {
			return i
		}
		if arg == "--" {
			return -1
		}
		var flag *pflag.Flag
		if name, long := strings.CutPrefix(arg, "--"); long {
			flag = flags.Lookup(name) // nil for --name=value
		} else if len(arg) == 2 {
			flag = flags.ShorthandLookup(arg[1:])
		}
		if flag != nil && flag.NoOptDefVal == "" {
			i++
		}
	}
	return -1
}

// builtIn returns the command of podium that the words name, nil if there is none.
func builtIn(root *cobra.Command, words []string) *cobra.Command {
	cmd, rest, err := root.Find(words)
	if err != nil || cmd == root || len(rest) > 0 {
		return nil
	}
	return cmd
}

// applyDefaults sets the flags of a command, or of the alias that it was called by (nil:
// none), that have a default value in the kuberc.
func (u preferences) applyDefaults(cmd *cobra.Command, alias *kuberc.Alias) error {
	if alias != nil { // the defaults of the command do not apply to its aliases
		return setDefaults(cmd, alias.Options, "alias "+alias.Name)
	}
	for _, d := range u.Defaults {
		named := builtIn(cmd.Root(), strings.Fields(d.Command))
		if named == nil {
			u.warn(fmt.Sprintf("command %q not found to set kuberc override", d.Command))
			continue
		}
		if named == cmd {
			if err := setDefaults(cmd, d.Options, "command "+d.Command); err != nil {
				return err
			}
		}
	}
	return nil
}

// setDefaults sets the flags that are not on the command line.
func setDefaults(cmd *cobra.Command, options []kuberc.Option, where string) error {
	given := map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	for _, o := range options {
		if cmd.Flags().Lookup(o.Name) == nil {
			return fmt.Errorf("kuberc: invalid flag %s for %s", o.Name, where)
		}
		if given[o.Name] {
			continue
		}
		if err := cmd.Flags().Set(o.Name, o.Default); err != nil {
			return fmt.Errorf("kuberc: could not apply value %s to flag %s of %s: %w", o.Default, o.Name, where, err)
		}
	}
	return nil
}
