package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/output"
	"podium/pkg/client/kubeconfig"
)

func newConfig(f *Factory) *cobra.Command {
	return group("config", "Modify kubeconfig files",
		newConfigView(f), newConfigCurrent(f), newConfigUse(f), newConfigContexts(f), newConfigSetContext(f))
}

// configOptions are the flags of config's subcommands.
type configOptions struct {
	*Factory
	Raw       bool
	Minify    bool
	NoHeaders bool
	Format    string
	Name      string
	Current   bool
	Set       kubeconfig.Context
}

func newConfigView(f *Factory) *cobra.Command {
	o := &configOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "view", Short: "Display merged kubeconfig settings, without secrets", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runConfigView(cmd.Context(), o) },
	}
	cmd.Flags().BoolVar(&o.Raw, "raw", false, "display raw byte data and sensitive data")
	cmd.Flags().BoolVar(&o.Minify, "minify", false, "remove all information that the current context does not use")
	return cmd
}

func runConfigView(_ context.Context, o *configOptions) error {
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	if o.Minify {
		if cfg, err = minified(cfg, o.contextName(cfg)); err != nil {
			return err
		}
	}
	text, err := yaml.Marshal(cfg)
	if err != nil {
		return err
	}
	if !o.Raw {
		if text, err = hideSecrets(text); err != nil {
			return err
		}
	}
	_, err = o.Out.Write(text)
	return err
}

func minified(cfg *kubeconfig.Config, name string) (*kubeconfig.Config, error) {
	ctx := cfg.Context(name)
	if ctx == nil {
		return nil, fmt.Errorf("cannot locate context %v", name)
	}
	out := *cfg
	out.CurrentContext = name
	out.Contexts = slices.DeleteFunc(slices.Clone(cfg.Contexts), func(c kubeconfig.Named[kubeconfig.Context]) bool { return c.Name != name })
	out.Clusters = slices.DeleteFunc(slices.Clone(cfg.Clusters), func(c kubeconfig.Named[kubeconfig.Cluster]) bool { return c.Name != ctx.Cluster })
	out.Users = slices.DeleteFunc(slices.Clone(cfg.Users), func(c kubeconfig.Named[kubeconfig.User]) bool { return c.Name != ctx.User })
	return &out, nil
}

// hideSecrets replaces credentials in a kubeconfig.
func hideSecrets(text []byte) ([]byte, error) {
	var m map[string]any
	if err := yaml.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for key, value := range v {
				switch key {
				case "certificate-authority-data", "client-certificate-data", "client-key-data":
					v[key] = "DATA+OMITTED"
				case "token", "password":
					v[key] = "REDACTED"
				default:
					walk(value)
				}
			}
		}
	}
	walk(m)
	return yaml.Marshal(m)
}

func newConfigCurrent(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "current-context", Short: "Display the current context", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := f.Config()
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

func newConfigContexts(f *Factory) *cobra.Command {
	o := &configOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "get-contexts [NAME]", Short: "Describe one or many contexts", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.Name = args[0]
			}
			return runConfigContexts(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "print names only: name")
	cmd.Flags().BoolVar(&o.NoHeaders, "no-headers", false, "do not print headers")
	return cmd
}

func runConfigContexts(_ context.Context, o *configOptions) error {
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	if o.Name != "" && cfg.Context(o.Name) == nil {
		return fmt.Errorf("context %s not found", o.Name)
	}
	var rows [][]string
	if o.Format != "name" && !o.NoHeaders {
		rows = append(rows, []string{"CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"})
	}
	for _, c := range cfg.Contexts {
		if o.Name != "" && c.Name != o.Name {
			continue
		}
		if o.Format == "name" {
			rows = append(rows, []string{c.Name})
			continue
		}
		mark := ""
		if c.Name == cfg.CurrentContext {
			mark = "*"
		}
		rows = append(rows, []string{mark, c.Name, c.Value.Cluster, c.Value.User, c.Value.Namespace})
	}
	return (&output.Columns{}).Write(o.Out, rows)
}

func newConfigUse(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "use-context NAME", Aliases: []string{"use"}, Short: "Set the current context in a kubeconfig file", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := f.Config()
			if err != nil {
				return err
			}
			if cfg.Context(args[0]) == nil {
				return fmt.Errorf("no context exists with the name: %q (see: podium config get-contexts)", args[0])
			}
			err = f.editConfig(func(file *kubeconfig.Config) { file.CurrentContext = args[0] })
			if err == nil {
				fmt.Fprintf(f.Out, "Switched to context %q.\n", args[0])
			}
			return err
		},
	}
}

func newConfigSetContext(f *Factory) *cobra.Command {
	o := &configOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "set-context NAME | --current", Short: "Set a context entry in a kubeconfig file", Args: cobra.MaximumNArgs(1),
		Example: "  podium config set-context --current --namespace=team-a",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Current == (len(args) == 1) {
				return errors.New("give the name of a context, or --current")
			}
			if len(args) == 1 {
				o.Name = args[0]
			}
			o.Set = kubeconfig.Context{Cluster: f.conn.cluster, User: f.conn.user, Namespace: f.conn.namespace}
			return runConfigSetContext(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Current, "current", false, "modify the current context")
	return cmd
}

func runConfigSetContext(_ context.Context, o *configOptions) error {
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	name := o.Name
	if o.Current {
		if name = o.contextName(cfg); name == "" {
			return errors.New("no current context is set")
		}
	}
	known := cfg.Context(name)
	verb := "created"
	err = o.editConfig(func(file *kubeconfig.Config) {
		ctx := file.Context(name)
		if ctx == nil {
			merged := kubeconfig.Context{}
			if known != nil {
				merged = *known
			}
			file.Contexts = append(file.Contexts, kubeconfig.Named[kubeconfig.Context]{Name: name, Value: merged})
			ctx = file.Context(name)
		}
		if known != nil {
			verb = "modified"
		}
		for _, change := range []struct {
			to   *string
			from string
		}{{&ctx.Cluster, o.Set.Cluster}, {&ctx.User, o.Set.User}, {&ctx.Namespace, o.Set.Namespace}} {
			if change.from != "" {
				*change.to = change.from
			}
		}
	})
	if err == nil {
		fmt.Fprintf(o.Out, "Context %q %s.\n", name, verb)
	}
	return err
}

// editConfig changes the first kubeconfig file. It reads the file without
// resolving relative paths, so that they stay unchanged.
func (f *Factory) editConfig(change func(*kubeconfig.Config)) error {
	path := f.conn.kubeconfig
	if path == "" {
		all := kubeconfig.DefaultPaths()
		if len(all) == 0 {
			return errors.New("no kubeconfig: set KUBECONFIG or --kubeconfig")
		}
		path = all[0]
		for _, p := range all { // the first that exists, as kubectl does
			if _, err := os.Stat(p); err == nil {
				path = p
				break
			}
		}
	}
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	file, err := kubeconfig.Parse(data, "")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	change(file)
	return file.Write(filepath.Clean(strings.TrimSpace(path)), 0o600)
}
