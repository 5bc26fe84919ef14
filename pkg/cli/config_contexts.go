package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"podium/pkg/cli/output"
	"podium/pkg/client/kubeconfig"
)

func newConfigCurrent(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "current-context", Short: "Display the current-context", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := f.configFiles().Load()
			if err != nil {
				return err
			}
			if cfg.CurrentContext == "" {
				return errors.New("current-context is not set (see: podium config get-contexts, use-context)")
			}
			_, err = fmt.Fprintln(f.Out, cfg.CurrentContext)
			return err
		},
	}
}

// contextsOptions are the arguments and flags of config get-contexts.
type contextsOptions struct {
	*Factory
	Names     []string
	NoHeaders bool
	Format    string
}

func newConfigContexts(f *Factory) *cobra.Command {
	o := &contextsOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "get-contexts [NAME...]", Short: "Describe one or many contexts", ValidArgsFunction: f.completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Names = args
			return runConfigContexts(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "print names only: name")
	cmd.Flags().BoolVar(&o.NoHeaders, "no-headers", false, "do not print headers")
	return cmd
}

func runConfigContexts(_ context.Context, o *contextsOptions) error {
	if o.Format != "" && o.Format != "name" {
		return fmt.Errorf("output must be one of '' or 'name': %s", o.Format)
	}
	cfg, err := o.configFiles().Load()
	if err != nil {
		return err
	}
	names := slices.Sorted(slices.Values(o.Names))
	if len(names) == 0 {
		names = cfg.Names(kubeconfig.Contexts)
	}
	var rows [][]string
	if o.Format != "name" && !o.NoHeaders {
		rows = append(rows, []string{"CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"})
	}
	var errs []error
	for _, name := range names {
		c := cfg.Context(name)
		switch {
		case c == nil:
			errs = append(errs, fmt.Errorf("context %v not found", name))
		case o.Format == "name":
			rows = append(rows, []string{name})
		default:
			mark := ""
			if name == cfg.CurrentContext {
				mark = "*"
			}
			rows = append(rows, []string{mark, name, c.Cluster, c.User, c.Namespace})
		}
	}
	return errors.Join(append(errs, (&output.Columns{}).Write(o.Out, rows))...)
}

func newConfigUse(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "use-context CONTEXT_NAME", Aliases: []string{"use"}, Short: "Set the current-context in a kubeconfig file", Args: cobra.ExactArgs(1), ValidArgsFunction: f.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := f.configFiles().Load()
			if err != nil {
				return err
			}
			if cfg.Context(args[0]) == nil {
				return fmt.Errorf("no context exists with the name: %q (see: podium config get-contexts)", args[0])
			}
			if err = f.configFiles().SetCurrentContext(args[0]); err == nil {
				fmt.Fprintf(f.Out, "Switched to context %q.\n", args[0])
			}
			return err
		},
	}
}

func newConfigRenameContext(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "rename-context CONTEXT_NAME NEW_NAME", Short: "Rename a context from the kubeconfig file", Args: cobra.ExactArgs(2), ValidArgsFunction: f.completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error { return renameContext(f, args[0], args[1]) },
	}
}

// renameContext renames a context in the file that holds it. The current context
// follows.
func renameContext(f *Factory, from, to string) error {
	if to == "" {
		return errors.New("you must specify a new non-empty context name")
	}
	files := f.configFiles()
	cfg, err := files.Load()
	if err != nil {
		return err
	}
	if cfg.Context(from) == nil {
		return fmt.Errorf("cannot rename the context %q, it's not in %s", from, files.Default())
	}
	if cfg.Context(to) != nil {
		return fmt.Errorf("cannot rename the context %q, the context %q already exists in %s", from, to, files.Default())
	}
	err = files.EditEntry(kubeconfig.Contexts, from, func(c *kubeconfig.Config) error {
		c.SetContext(to, *c.Context(from))
		c.Remove(kubeconfig.Contexts, from)
		return nil
	})
	if err == nil && cfg.CurrentContext == from {
		err = files.SetCurrentContext(to)
	}
	if err == nil {
		fmt.Fprintf(f.Out, "Context %q renamed to %q.\n", from, to)
	}
	return err
}

// setContextOptions are the arguments and flags of config set-context.
type setContextOptions struct {
	*Factory
	Name    string
	Current bool
	Set     entryFlags
}

func newConfigSetContext(f *Factory) *cobra.Command {
	o := &setContextOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "set-context [NAME | --current]", Short: "Set a context entry in kubeconfig", Args: cobra.MaximumNArgs(1), ValidArgsFunction: f.completeContexts,
		Example: "  podium config set-context --current --namespace=team-a",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Current == (len(args) == 1) {
				return errors.New("give the name of a context, or --current")
			}
			if len(args) == 1 {
				o.Name = args[0]
			}
			return runConfigSetContext(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Current, "current", false, "modify the current context")
	o.Set = entryFlags{cmd.Flags()}
	o.Set.text("cluster", "cluster for the context entry in kubeconfig")
	o.Set.text("user", "user for the context entry in kubeconfig")
	cmd.Flags().StringP("namespace", "n", "", "namespace for the context entry in kubeconfig")
	return cmd
}

func runConfigSetContext(_ context.Context, o *setContextOptions) error {
	cfg, err := o.configFiles().Load()
	if err != nil {
		return err
	}
	name := o.Name
	if o.Current {
		if name = cfg.CurrentContext; name == "" {
			return errors.New("no current context is set")
		}
	}
	if name == "" {
		return errors.New("you must specify a non-empty context name or --current")
	}
	verb := "created"
	if cfg.Context(name) != nil {
		verb = "modified"
	}
	err = o.configFiles().EditEntry(kubeconfig.Contexts, name, func(c *kubeconfig.Config) error {
		v := valueOf(c.Context(name))
		o.Set.into("cluster", &v.Cluster)
		o.Set.into("user", &v.User)
		o.Set.into("namespace", &v.Namespace)
		c.SetContext(name, v)
		return nil
	})
	if err == nil {
		fmt.Fprintf(o.Out, "Context %q %s.\n", name, verb)
	}
	return err
}
