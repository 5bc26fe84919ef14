package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podium/pkg/client/kubeconfig"
)

func newConfig(f *Factory) *cobra.Command {
	return group("config", "Modify kubeconfig files",
		newConfigCurrent(f), newConfigDelete(f, "cluster", kubeconfig.Clusters), newConfigDelete(f, "context", kubeconfig.Contexts), newConfigDelete(f, "user", kubeconfig.Users),
		newConfigNames(f, kubeconfig.Clusters), newConfigContexts(f), newConfigNames(f, kubeconfig.Users),
		newConfigRenameContext(f), newConfigSet(f), newConfigSetCluster(f, runConfigSetCluster), newConfigSetContext(f), newConfigSetCredentials(f, runConfigSetCredentials),
		newConfigUnset(f), newConfigUse(f), newConfigView(f, runConfigView))
}

// configFiles returns the kubeconfig files that the command reads and changes.
func (f *Factory) configFiles() kubeconfig.Files { return kubeconfig.FilesOf(f.conn.kubeconfig) }

// valueOf returns what p points to, or the zero value.
func valueOf[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

// entryFlags are flags that set fields of an entry: those that are given, even if
// they are empty. They hide the flags of the same name that all commands have.
type entryFlags struct{ *pflag.FlagSet }

func (f entryFlags) text(name, usage string) { f.String(name, "", usage) }

// given returns the value of a flag, and whether it is on the command line.
func (f entryFlags) given(name string) (string, bool) {
	flag := f.Lookup(name)
	return flag.Value.String(), flag.Changed
}

// into sets a field if its flag is given.
func (f entryFlags) into(name string, field *string) {
	if v, ok := f.given(name); ok {
		*field = v
	}
}

// newConfigNames returns get-clusters or get-users.
func newConfigNames(f *Factory, list kubeconfig.List) *cobra.Command {
	return &cobra.Command{
		Use: "get-" + string(list), Short: fmt.Sprintf("Display %s defined in the kubeconfig", list), Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := f.configFiles().Load()
			if err != nil {
				return err
			}
			fmt.Fprintln(f.Out, "NAME")
			for _, name := range cfg.Names(list) {
				fmt.Fprintln(f.Out, name)
			}
			return nil
		},
	}
}

// newConfigDelete returns delete-cluster, delete-context or delete-user.
func newConfigDelete(f *Factory, what string, list kubeconfig.List) *cobra.Command {
	return &cobra.Command{
		Use: fmt.Sprintf("delete-%s NAME", what), Short: fmt.Sprintf("Delete the specified %s from the kubeconfig", what), Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return f.completeEntries(list, args, prefix)
		},
		RunE: func(_ *cobra.Command, args []string) error { return deleteEntry(f, what, list, args[0]) },
	}
}

func deleteEntry(f *Factory, what string, list kubeconfig.List, name string) error {
	files := f.configFiles()
	cfg, err := files.Load()
	if err != nil {
		return err
	}
	if !cfg.Has(list, name) {
		return fmt.Errorf("cannot delete %s %s, not in %s", what, name, files.Default())
	}
	if list == kubeconfig.Contexts && cfg.CurrentContext == name {
		fmt.Fprintln(f.Err, `warning: this removed your active context, use "podium config use-context" to select a different one`)
	}
	err = files.EditEntry(list, name, func(c *kubeconfig.Config) error { c.Remove(list, name); return nil })
	if err == nil {
		fmt.Fprintf(f.Out, "deleted %s %s from %s\n", what, name, files.Default())
	}
	return err
}

func newConfigSet(f *Factory) *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use: "set PROPERTY_NAME PROPERTY_VALUE", Short: "Set an individual value in a kubeconfig file", Args: cobra.ExactArgs(2),
		Example: "  podium config set clusters.test.server https://192.0.2.4:6443\n  podium config set contexts.test.namespace team-a",
		RunE: func(_ *cobra.Command, args []string) error {
			if args[1] == "" {
				return errors.New("you cannot use set to unset a property")
			}
			p, err := kubeconfig.ParseProperty(args[0])
			if err != nil {
				return err
			}
			if err = f.configFiles().Set(p, args[1], raw); err == nil {
				fmt.Fprintf(f.Out, "Property %q set.\n", args[0])
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&raw, "set-raw-bytes", false, "write a binary PROPERTY_VALUE as given, without base64 decoding")
	return cmd
}

func newConfigUnset(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "unset PROPERTY_NAME", Short: "Unset an individual value in a kubeconfig file", Args: cobra.ExactArgs(1),
		Example: "  podium config unset current-context\n  podium config unset contexts.test.namespace",
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := kubeconfig.ParseProperty(args[0])
			if err != nil {
				return err
			}
			if err = f.configFiles().Unset(p); err == nil {
				fmt.Fprintf(f.Out, "Property %q unset.\n", args[0])
			}
			return err
		},
	}
}
