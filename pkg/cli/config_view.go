package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"podium/pkg/cli/output"
	"podium/pkg/client/kubeconfig"
)

// viewOptions are the flags of config view.
type viewOptions struct {
	*Factory
	printing
	Raw, Minify, Flatten, Merge bool
}

func newConfigView(f *Factory, run func(context.Context, *viewOptions) error) *cobra.Command {
	o := &viewOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "view", Short: "Display merged kubeconfig settings or a specified kubeconfig file", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("merge") && f.configFiles().Named() {
				o.Merge = false
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Raw, "raw", false, "display raw byte data and sensitive data")
	cmd.Flags().BoolVar(&o.Minify, "minify", false, "remove all information that the current context does not use")
	cmd.Flags().BoolVar(&o.Flatten, "flatten", false, "read the files that the kubeconfig names into it, and display sensitive data: a kubeconfig that works elsewhere")
	cmd.Flags().BoolVar(&o.Merge, "merge", true, "merge the full hierarchy of kubeconfig files")
	o.printingFlags(cmd, "print the kubeconfig: ", "yaml")
	return cmd
}

func runConfigView(_ context.Context, o *viewOptions) error {
	printer, err := output.New(o.options())
	if err != nil {
		return err
	}
	cfg, err := o.load()
	if err != nil {
		return err
	}
	if o.Minify {
		if cfg, err = minified(cfg, o.contextName(cfg)); err != nil {
			return err
		}
	}
	if o.Flatten {
		err = flatten(cfg)
	} else if !o.Raw {
		hideCredentials(cfg)
	}
	if err != nil {
		return err
	}
	sortEntries(cfg.Clusters)
	sortEntries(cfg.Users)
	sortEntries(cfg.Contexts)
	obj, err := configObject(cfg)
	if err != nil {
		return err
	}
	if !o.Raw && !o.Flatten {
		hideData(obj.Object)
	}
	return printer.Print(o.Out, obj)
}

// load returns the kubeconfig to show. Paths in it are as in the files, or, to read
// them, absolute.
func (o *viewOptions) load() (*kubeconfig.Config, error) {
	if !o.Merge && !o.configFiles().Named() {
		return nil, errors.New("if merge==false a precise file must be specified")
	}
	if o.Flatten {
		return o.Config()
	}
	if o.configFiles().Named() && !o.Merge {
		if _, err := os.Stat(o.conn.kubeconfig); err != nil {
			return nil, err
		}
	}
	return o.configFiles().Load()
}

func minified(cfg *kubeconfig.Config, name string) (*kubeconfig.Config, error) {
	if name == "" {
		return nil, errors.New("current-context must exist in order to minify")
	}
	ctx := cfg.Context(name)
	if ctx == nil {
		return nil, fmt.Errorf("cannot locate context %v", name)
	}
	out := *cfg
	out.CurrentContext = name
	out.Contexts = only(cfg.Contexts, name)
	out.Clusters = only(cfg.Clusters, ctx.Cluster)
	out.Users = only(cfg.Users, ctx.User)
	return &out, nil
}

func only[T kubeconfig.Cluster | kubeconfig.User | kubeconfig.Context](list []kubeconfig.Named[T], name string) []kubeconfig.Named[T] {
	return slices.DeleteFunc(slices.Clone(list), func(n kubeconfig.Named[T]) bool { return n.Name != name })
}

func sortEntries[T kubeconfig.Cluster | kubeconfig.User | kubeconfig.Context](list []kubeconfig.Named[T]) {
	slices.SortFunc(list, func(a, b kubeconfig.Named[T]) int { return strings.Compare(a.Name, b.Name) })
}

// flatten replaces paths of certificates and keys by the contents of the files.
func flatten(cfg *kubeconfig.Config) error {
	var errs []error
	embed := func(path *string, data *[]byte) {
		if *path == "" {
			return
		}
		if len(*data) > 0 {
			errs = append(errs, errors.New("cannot have values for both path and contents"))
			return
		}
		text, err := os.ReadFile(*path)
		*path, *data = "", text
		errs = append(errs, err)
	}
	for i := range cfg.Clusters {
		c := &cfg.Clusters[i].Value
		embed(&c.CertificateAuthority, &c.CertificateAuthorityData)
	}
	for i := range cfg.Users {
		u := &cfg.Users[i].Value
		embed(&u.ClientCertificate, &u.ClientCertificateData)
		embed(&u.ClientKey, &u.ClientKeyData)
	}
	return errors.Join(errs...)
}

const redacted = "REDACTED"

// hideCredentials replaces tokens, passwords and the values that are passed to
// plugins, which often are secrets.
func hideCredentials(cfg *kubeconfig.Config) {
	for i := range cfg.Users {
		u := &cfg.Users[i].Value
		for _, secret := range []*string{&u.Token, &u.Password} {
			if *secret != "" {
				*secret = redacted
			}
		}
		if u.Exec != nil {
			for i := range u.Exec.Env {
				u.Exec.Env[i].Value = redacted
			}
		}
		if u.AuthProvider != nil {
			for key := range u.AuthProvider.Config {
				u.AuthProvider.Config[key] = redacted
			}
		}
	}
}

// hideData replaces certificates and keys in the lists of clusters and users.
func hideData(cfg map[string]any) {
	for list, key := range map[string]string{"clusters": "cluster", "users": "user"} {
		entries, _ := cfg[list].([]any)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			value, _ := entry[key].(map[string]any)
			for name := range value {
				if strings.HasSuffix(name, "-data") {
					value[name] = "DATA+OMITTED"
				}
			}
		}
	}
}

// configObject returns the kubeconfig for a printer.
func configObject(cfg *kubeconfig.Config) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	return obj, json.Unmarshal(data, &obj.Object)
}
