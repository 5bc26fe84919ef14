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

	"podium/pkg/client/kubeconfig"
)

// setEntryOptions are the arguments and flags of config set-cluster and
// set-credentials.
type setEntryOptions struct {
	*Factory
	Name  string
	Set   entryFlags
	Embed bool

	Insecure bool // of set-cluster

	// Of set-credentials: KEY=VALUE sets, KEY- removes.
	ProviderArgs, ExecEnv []string
	ExecArgs              []string
	ExecClusterInfo       bool
}

type runSetEntry = func(context.Context, *setEntryOptions) error

func newConfigSetCluster(f *Factory, run runSetEntry) *cobra.Command {
	o := &setEntryOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "set-cluster NAME", Short: "Set a cluster entry in kubeconfig", Args: cobra.ExactArgs(1),
		Example: "  podium config set-cluster test --server=https://192.0.2.4:6443 --certificate-authority=ca.crt --embed-certs",
		RunE:    o.named(run),
	}
	o.Set = entryFlags{cmd.Flags()}
	o.Set.text("server", "server for the cluster entry in kubeconfig")
	o.Set.text("tls-server-name", "tls-server-name for the cluster entry in kubeconfig")
	o.Set.text("certificate-authority", "path to certificate-authority file for the cluster entry in kubeconfig")
	o.Set.text("proxy-url", "proxy-url for the cluster entry in kubeconfig")
	cmd.Flags().BoolVar(&o.Insecure, "insecure-skip-tls-verify", false, "insecure-skip-tls-verify for the cluster entry in kubeconfig")
	cmd.Flags().BoolVar(&o.Embed, "embed-certs", false, "embed the certificate authority in the cluster entry in kubeconfig")
	return cmd
}

// named returns the RunE of a command whose argument is the entry's name.
func (o *setEntryOptions) named(run runSetEntry) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if o.Name = args[0]; o.Name == "" {
			return errors.New("you must specify a non-empty name")
		}
		return run(cmd.Context(), o)
	}
}

func runConfigSetCluster(_ context.Context, o *setEntryOptions) error {
	ca, _ := o.Set.given("certificate-authority")
	if o.Insecure && ca != "" {
		return errors.New("you cannot specify a certificate authority and insecure mode at the same time")
	}
	if o.Embed && ca == "" {
		return errors.New("you must specify a --certificate-authority to embed")
	}
	err := o.configFiles().EditEntry(kubeconfig.Clusters, o.Name, func(cfg *kubeconfig.Config) error {
		c := valueOf(cfg.Cluster(o.Name))
		err := o.changeCluster(&c)
		cfg.SetCluster(o.Name, c)
		return err
	})
	if err == nil {
		fmt.Fprintf(o.Out, "Cluster %q set.\n", o.Name)
	}
	return err
}

// changeCluster sets what the flags give. A new server drops the name to verify, and
// insecure mode and a certificate authority exclude each other.
func (o *setEntryOptions) changeCluster(c *kubeconfig.Cluster) error {
	if server, ok := o.Set.given("server"); ok {
		c.Server, c.TLSServerName = server, ""
	}
	o.Set.into("tls-server-name", &c.TLSServerName)
	o.Set.into("proxy-url", &c.ProxyURL)
	if o.Set.Changed("insecure-skip-tls-verify") {
		c.InsecureSkipTLSVerify = o.Insecure
		if o.Insecure {
			c.CertificateAuthority, c.CertificateAuthorityData = "", nil
		}
	}
	if err := o.certificate("certificate-authority", kubeconfig.Clusters, &c.CertificateAuthority, &c.CertificateAuthorityData); err != nil {
		return err
	}
	if ca, _ := o.Set.given("certificate-authority"); ca != "" {
		c.InsecureSkipTLSVerify = false
	}
	return nil
}

// certificate sets a path, or with --embed-certs the contents of the file. A path
// below the directory of the kubeconfig is kept relative to it.
func (o *setEntryOptions) certificate(flag string, list kubeconfig.List, path *string, data *[]byte) error {
	file, given := o.Set.given(flag)
	switch {
	case !given:
		return nil
	case file == "":
		*path = ""
		return nil
	case o.Embed:
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("could not read %s file: %w", flag, err)
		}
		*path, *data = "", text
		return nil
	}
	dir, err := o.configFiles().Dir(list, o.Name)
	if err != nil {
		return err
	}
	if *path, err = filepath.Abs(file); err != nil {
		return err
	}
	if below, err := filepath.Rel(dir, *path); err == nil && filepath.IsLocal(below) {
		*path = below
	}
	*data = nil
	return nil
}

func newConfigSetCredentials(f *Factory, run runSetEntry) *cobra.Command {
	o := &setEntryOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "set-credentials NAME", Short: "Set a user entry in kubeconfig", Args: cobra.ExactArgs(1),
		Example: "  podium config set-credentials admin --client-certificate=admin.crt --client-key=admin.key --embed-certs\n" +
			"  podium config set-credentials admin --exec-api-version=client.authentication.k8s.io/v1 --exec-command=login --exec-env=REALM=test",
		RunE: o.named(run),
	}
	o.Set = entryFlags{cmd.Flags()}
	o.Set.text("client-certificate", "path to client-certificate file for the user entry in kubeconfig")
	o.Set.text("client-key", "path to client-key file for the user entry in kubeconfig")
	for _, name := range []string{"token", "username", "password"} {
		o.Set.text(name, name+" for the user entry in kubeconfig")
	}
	o.Set.text("auth-provider", "auth provider for the user entry in kubeconfig")
	o.Set.text("exec-command", "command for the exec credential plugin for the user entry in kubeconfig")
	o.Set.text("exec-api-version", "API version of the exec credential plugin for the user entry in kubeconfig")
	o.Set.text("exec-interactive-mode", "interactive mode of the exec credential plugin for the user entry in kubeconfig: Never, IfAvailable or Always")
	cmd.Flags().BoolVar(&o.ExecClusterInfo, "exec-provide-cluster-info", false, "pass information about the cluster to the exec credential plugin for the user entry in kubeconfig")
	cmd.Flags().StringSliceVar(&o.ProviderArgs, "auth-provider-arg", nil, "'key=value' arguments for the auth provider; 'key-' removes one")
	cmd.Flags().StringSliceVar(&o.ExecArgs, "exec-arg", nil, "new arguments for the exec credential plugin command for the user entry in kubeconfig")
	cmd.Flags().StringArrayVar(&o.ExecEnv, "exec-env", nil, "'key=value' environment values for the exec credential plugin; 'key-' removes one")
	cmd.Flags().BoolVar(&o.Embed, "embed-certs", false, "embed client cert/key for the user entry in kubeconfig")
	return cmd
}

func runConfigSetCredentials(_ context.Context, o *setEntryOptions) error {
	if err := o.checkCredentials(); err != nil {
		return err
	}
	err := o.configFiles().EditEntry(kubeconfig.Users, o.Name, func(cfg *kubeconfig.Config) error {
		u := valueOf(cfg.User(o.Name))
		err := o.changeUser(&u)
		cfg.SetUser(o.Name, u)
		return err
	})
	if err == nil {
		fmt.Fprintf(o.Out, "User %q set.\n", o.Name)
	}
	return err
}

func (o *setEntryOptions) checkCredentials() error {
	value := func(name string) string { v, _ := o.Set.given(name); return v }
	if value("token") != "" && (value("username") != "" || value("password") != "") {
		return errors.New("you cannot specify more than one authentication method at the same time: --token, --username/--password")
	}
	if o.Embed && value("client-certificate") == "" && value("client-key") == "" {
		return errors.New("you must specify a --client-certificate or --client-key to embed")
	}
	if mode, given := o.Set.given("exec-interactive-mode"); given && !slices.Contains([]string{"IfAvailable", "Never", "Always"}, mode) {
		return errors.New("invalid interactive mode type, can be only IfAvailable, Never, Always")
	}
	return nil
}

// changeUser sets what the flags give. A token and a password exclude each other.
func (o *setEntryOptions) changeUser(u *kubeconfig.User) error {
	err := errors.Join(
		o.certificate("client-certificate", kubeconfig.Users, &u.ClientCertificate, &u.ClientCertificateData),
		o.certificate("client-key", kubeconfig.Users, &u.ClientKey, &u.ClientKeyData))
	for name, field := range map[string]*string{"token": &u.Token, "username": &u.Username, "password": &u.Password} {
		o.Set.into(name, field)
	}
	token, _ := o.Set.given("token")
	name, _ := o.Set.given("username")
	password, _ := o.Set.given("password")
	switch {
	case token != "":
		u.Username, u.Password = "", ""
	case name != "" || password != "":
		u.Token = ""
	}
	return errors.Join(err, o.changeProvider(u), o.changeExec(u))
}

func (o *setEntryOptions) changeProvider(u *kubeconfig.User) error {
	if name, given := o.Set.given("auth-provider"); given && (u.AuthProvider == nil || u.AuthProvider.Name != name) {
		u.AuthProvider = &kubeconfig.AuthProvider{Name: name}
	}
	if u.AuthProvider == nil {
		return nil
	}
	if u.AuthProvider.Config == nil {
		u.AuthProvider.Config = map[string]string{}
	}
	set := func(key, value string) { u.AuthProvider.Config[key] = value }
	return eachPair("auth-provider-arg", o.ProviderArgs, set, func(key string) { delete(u.AuthProvider.Config, key) })
}

// changeExec sets what the flags give. A new command drops the arguments of the
// previous one.
func (o *setEntryOptions) changeExec(u *kubeconfig.User) error {
	if command, given := o.Set.given("exec-command"); given {
		if u.Exec == nil {
			u.Exec = &kubeconfig.Exec{}
		}
		u.Exec.Command, u.Exec.Args = command, nil
	}
	if u.Exec == nil {
		return nil
	}
	o.Set.into("exec-api-version", &u.Exec.APIVersion)
	o.Set.into("exec-interactive-mode", &u.Exec.InteractiveMode)
	if o.Set.Changed("exec-provide-cluster-info") {
		u.Exec.ProvideClusterInfo = o.ExecClusterInfo
	}
	if len(o.ExecArgs) > 0 {
		u.Exec.Args = o.ExecArgs
	}
	remove := func(key string) {
		u.Exec.Env = slices.DeleteFunc(u.Exec.Env, func(e kubeconfig.EnvVar) bool { return e.Name == key })
	}
	return eachPair("exec-env", o.ExecEnv, func(key, value string) {
		i := slices.IndexFunc(u.Exec.Env, func(e kubeconfig.EnvVar) bool { return e.Name == key })
		if i < 0 {
			u.Exec.Env = append(u.Exec.Env, kubeconfig.EnvVar{Name: key, Value: value})
			return
		}
		u.Exec.Env[i].Value = value
	}, remove)
}

// eachPair calls set for KEY=VALUE and remove for KEY-.
func eachPair(flag string, args []string, set func(key, value string), remove func(key string)) error {
	for _, arg := range args {
		if key, value, ok := strings.Cut(arg, "="); ok && key != "" {
			set(key, value)
		} else if key, ok := strings.CutSuffix(arg, "-"); ok && key != "" {
			remove(key)
		} else {
			return fmt.Errorf("invalid %s: %q, want key=value or key-", flag, arg)
		}
	}
	return nil
}
