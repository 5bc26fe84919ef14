package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"podium/pkg/cli/rest"
)

type runCreateFunc = func(context.Context, *createOptions) error

// creator completes a subcommand of create for one kind.
func creator(f *Factory, run runCreateFunc, cmd *cobra.Command, build func(name, namespace string) (runtime.Object, schema.GroupVersionKind, error)) *cobra.Command {
	o := &createOptions{change: change{Factory: f}}
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Make = func(namespace string) ([]*rest.Object, error) {
			typed, gvk, err := build(args[0], namespace)
			if err != nil {
				return nil, err
			}
			obj, err := toObject(typed, gvk)
			return []*rest.Object{obj}, err
		}
		return run(cmd.Context(), o)
	}
	o.commonFlags(cmd)
	return cmd
}

// toObject converts a typed object to its wire form, without an empty status.
func toObject(typed runtime.Object, gvk schema.GroupVersionKind) (*rest.Object, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	o := &rest.Object{Object: m}
	o.SetGroupVersionKind(gvk)
	if status, ok := m["status"].(map[string]any); ok && len(status) <= 1 {
		delete(m, "status")
	}
	return o, nil
}

func core(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }

func newCreateNamespace(f *Factory, run runCreateFunc) *cobra.Command {
	return creator(f, run, &cobra.Command{
		Use: "namespace NAME", Aliases: []string{"ns"}, Short: "Create a namespace with the specified name",
	}, func(name, _ string) (runtime.Object, schema.GroupVersionKind, error) {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, core("Namespace"), nil
	})
}

func newCreateServiceAccount(f *Factory, run runCreateFunc) *cobra.Command {
	return creator(f, run, &cobra.Command{
		Use: "serviceaccount NAME", Aliases: []string{"sa"}, Short: "Create a service account with the specified name",
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, core("ServiceAccount"), nil
	})
}

// dataFlags are the sources of the data of ConfigMaps and Secrets.
type dataFlags struct{ files, literals, envFiles []string }

func (d *dataFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&d.files, "from-file", nil, "[KEY=]FILE or directory; the key defaults to the file's name")
	cmd.Flags().StringArrayVar(&d.literals, "from-literal", nil, "key and literal value to insert (KEY=VALUE)")
	cmd.Flags().StringArrayVar(&d.envFiles, "from-env-file", nil, "file with KEY=VALUE lines")
}

// collect reads all sources and calls add for each key; add refuses duplicates.
func (d *dataFlags) collect(add func(key string, value []byte) error) error {
	for _, arg := range d.literals {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return fmt.Errorf("invalid literal source %q, expected key=value", arg)
		}
		if err := add(key, []byte(value)); err != nil {
			return err
		}
	}
	for _, arg := range d.files {
		if err := d.file(arg, add); err != nil {
			return err
		}
	}
	for _, name := range d.envFiles {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(data), "\n") {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			key, value, ok := strings.Cut(line, "=")
			if !ok {
				value = os.Getenv(key)
			}
			if err := add(strings.TrimSpace(key), []byte(value)); err != nil {
				return fmt.Errorf("%s:%d: %w", name, i+1, err)
			}
		}
	}
	return nil
}

// file calls add for [KEY=]FILE, or for every regular file in a directory.
func (d *dataFlags) file(arg string, add func(string, []byte) error) error {
	key, path, named := strings.Cut(arg, "=")
	if !named {
		path = arg
		key = filepath.Base(path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return add(key, data)
	}
	if named {
		return fmt.Errorf("%s is a folder and cannot have one key", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := d.file(filepath.Join(path, e.Name()), add); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkKey(key string, taken bool) error {
	if errs := validation.IsConfigMapKey(key); len(errs) > 0 {
		return fmt.Errorf("%q is not a valid key name: %s", key, strings.Join(errs, "; "))
	}
	if taken {
		return fmt.Errorf("cannot add key %q, another key by that name already exists", key)
	}
	return nil
}

func newCreateConfigMap(f *Factory, run runCreateFunc) *cobra.Command {
	var data dataFlags
	var hash appendHash
	cmd := creator(f, run, &cobra.Command{
		Use: "configmap NAME", Aliases: []string{"cm"}, Short: "Create a config map from a local file, directory or literal value",
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string]string{}}
		err := data.collect(func(key string, value []byte) error {
			_, text := cm.Data[key]
			_, binary := cm.BinaryData[key]
			if err := checkKey(key, text || binary); err != nil {
				return err
			}
			if utf8.Valid(value) {
				cm.Data[key] = string(value)
				return nil
			}
			if cm.BinaryData == nil {
				cm.BinaryData = map[string][]byte{}
			}
			cm.BinaryData[key] = value
			return nil
		})
		if err == nil {
			err = hash.configMap(cm)
		}
		return cm, core("ConfigMap"), err
	})
	data.add(cmd)
	hash.add(cmd)
	return cmd
}

func newCreateSecret(f *Factory, run runCreateFunc) *cobra.Command {
	group := &cobra.Command{Use: "secret", Short: "Create a secret using a specified subcommand", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return errors.New("specify the type of the Secret: podium create secret generic|tls|docker-registry NAME")
	}}
	group.AddCommand(newSecretGeneric(f, run), newSecretTLS(f, run), newSecretRegistry(f, run))
	return group
}

func newSecretGeneric(f *Factory, run runCreateFunc) *cobra.Command {
	var data dataFlags
	var hash appendHash
	kind := ""
	cmd := creator(f, run, &cobra.Command{Use: "generic NAME", Short: "Create a secret from a local file, directory or literal value"},
		func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
			s := secret(name, ns, corev1.SecretType(kind))
			err := data.collect(func(key string, value []byte) error {
				_, taken := s.Data[key]
				if err := checkKey(key, taken); err != nil {
					return err
				}
				s.Data[key] = value
				return nil
			})
			if err == nil {
				err = hash.secret(s)
			}
			return s, core("Secret"), err
		})
	data.add(cmd)
	hash.add(cmd)
	cmd.Flags().StringVar(&kind, "type", "", "type of secret to create (default Opaque)")
	return cmd
}

func secret(name, ns string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Type: kind, Data: map[string][]byte{}}
}

func newSecretTLS(f *Factory, run runCreateFunc) *cobra.Command {
	var cert, key string
	var hash appendHash
	cmd := creator(f, run, &cobra.Command{Use: "tls NAME --cert=FILE --key=FILE", Short: "Create a TLS secret"},
		func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
			s := secret(name, ns, corev1.SecretTypeTLS)
			for k, file := range map[string]string{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key} {
				data, err := os.ReadFile(file)
				if err != nil {
					return nil, schema.GroupVersionKind{}, err
				}
				s.Data[k] = data
			}
			return s, core("Secret"), hash.secret(s)
		})
	hash.add(cmd)
	cmd.Flags().StringVar(&cert, "cert", "", "path to the PEM encoded public key certificate")
	cmd.Flags().StringVar(&key, "key", "", "path to the private key of the certificate")
	_ = cmd.MarkFlagRequired("cert")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

func newSecretRegistry(f *Factory, run runCreateFunc) *cobra.Command {
	var server, user, password, email string
	var data dataFlags
	var hash appendHash
	cmd := creator(f, run, &cobra.Command{Use: "docker-registry NAME", Short: "Create a secret for use with a Docker registry"},
		func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
			s := secret(name, ns, corev1.SecretTypeDockerConfigJson)
			if len(data.files) > 0 {
				if err := registryFile(s, &data, user+password+email); err != nil {
					return nil, core("Secret"), err
				}
				return s, core("Secret"), hash.secret(s)
			}
			if user == "" || password == "" {
				return nil, core("Secret"), errors.New("either --from-file or the combination of --docker-username, --docker-password and --docker-server is required")
			}
			entry := map[string]any{"username": user, "password": password, "auth": []byte(user + ":" + password)}
			if email != "" {
				entry["email"] = email
			}
			data, err := json.Marshal(map[string]any{"auths": map[string]any{server: entry}})
			if err != nil {
				return nil, core("Secret"), err
			}
			s.Data[corev1.DockerConfigJsonKey] = data
			return s, core("Secret"), hash.secret(s)
		})
	hash.add(cmd)
	cmd.Flags().StringVar(&server, "docker-server", "https://index.docker.io/v1/", "server location of the Docker registry")
	cmd.Flags().StringVar(&user, "docker-username", "", "username for Docker registry authentication")
	cmd.Flags().StringVar(&password, "docker-password", "", "password for Docker registry authentication")
	cmd.Flags().StringVar(&email, "docker-email", "", "email for the Docker registry")
	cmd.Flags().StringArrayVar(&data.files, "from-file", nil, "the file "+corev1.DockerConfigJsonKey+" of Docker, instead of the --docker flags: ["+corev1.DockerConfigJsonKey+"=]FILE")
	return cmd
}

// registryFile sets the data of a secret from the file of --from-file. given are the
// values of flags that say the same.
func registryFile(s *corev1.Secret, data *dataFlags, given string) error {
	if given != "" {
		return errors.New("--from-file cannot be used with --docker-username, --docker-password or --docker-email")
	}
	err := data.collect(func(key string, value []byte) error {
		s.Data[key] = value
		return nil
	})
	if _, ok := s.Data[corev1.DockerConfigJsonKey]; err == nil && (!ok || len(s.Data) > 1) {
		err = fmt.Errorf("--from-file must give one key, %s: want %s=FILE", corev1.DockerConfigJsonKey, corev1.DockerConfigJsonKey)
	}
	return err
}

func newCreateDeployment(f *Factory, run runCreateFunc) *cobra.Command {
	var images []string
	var replicas, port int32
	var command []string
	cmd := creator(f, run, &cobra.Command{
		Use: "deployment NAME --image=IMAGE [-- COMMAND ARG...]", Aliases: []string{"deploy"}, Short: "Create a deployment with the specified name",
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		labels := map[string]string{"app": name}
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
			},
		}
		for i, image := range images {
			c := corev1.Container{Name: containerName(image, i), Image: image, Command: command}
			if port > 0 {
				c.Ports = []corev1.ContainerPort{{ContainerPort: port}}
			}
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, c)
		}
		return d, appsv1.SchemeGroupVersion.WithKind("Deployment"), nil
	})
	takesCommand(cmd, &command)
	cmd.Flags().StringSliceVar(&images, "image", nil, "image name to run; may be repeated")
	cmd.Flags().Int32VarP(&replicas, "replicas", "r", 1, "number of replicas to create")
	cmd.Flags().Int32Var(&port, "port", -1, "container port that the deployment exposes")
	_ = cmd.MarkFlagRequired("image")
	return cmd
}

// takesCommand lets a subcommand of create take a container's command after "--".
func takesCommand(cmd *cobra.Command, command *[]string) {
	inner := cmd.RunE
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if at := cmd.ArgsLenAtDash(); at >= 0 {
			args, *command = args[:at], args[at:]
		}
		if len(args) != 1 {
			return fmt.Errorf("exactly one NAME is required, got %d", len(args))
		}
		return inner(cmd, args)
	}
}

// containerName derives a name from an image: the last part, without tag and
// digest.
func containerName(image string, i int) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	name = strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name), "-")
	if name == "" {
		return "container-" + strconv.Itoa(i)
	}
	return name
}

func newCreateService(f *Factory, run runCreateFunc) *cobra.Command {
	group := &cobra.Command{Use: "service", Aliases: []string{"svc"}, Short: "Create a service using a specified subcommand", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		return errors.New("specify the type of the Service: podium create service clusterip|nodeport|loadbalancer|externalname NAME --tcp=PORT[:TARGET]")
	}}
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName} {
		group.AddCommand(newServiceOf(f, run, kind))
	}
	return group
}

func newServiceOf(f *Factory, run runCreateFunc, kind corev1.ServiceType) *cobra.Command {
	var tcp []string
	var nodePort int32
	var clusterIP, externalName string
	use := strings.ToLower(string(kind))
	cmd := creator(f, run, &cobra.Command{Use: use + " NAME --tcp=PORT[:TARGET]", Short: "Create a " + string(kind) + " service"},
		func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
			s := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}},
				Spec:       corev1.ServiceSpec{Type: kind, ClusterIP: clusterIP, ExternalName: externalName, Selector: map[string]string{"app": name}},
			}
			for _, arg := range tcp {
				p, err := servicePort(arg)
				if err != nil {
					return nil, schema.GroupVersionKind{}, err
				}
				p.NodePort = nodePort
				s.Spec.Ports = append(s.Spec.Ports, p)
			}
			if len(tcp) == 0 && clusterIP != corev1.ClusterIPNone && kind != corev1.ServiceTypeExternalName {
				return nil, schema.GroupVersionKind{}, errors.New("at least one tcp port specifier must be provided (--tcp=PORT:TARGET)")
			}
			return s, core("Service"), nil
		})
	cmd.Flags().StringSliceVar(&tcp, "tcp", nil, "port pair as PORT or PORT:TARGETPORT; may be repeated")
	switch kind {
	case corev1.ServiceTypeNodePort:
		cmd.Flags().Int32Var(&nodePort, "node-port", 0, "port on the nodes (default: a free one)")
	case corev1.ServiceTypeClusterIP:
		cmd.Flags().StringVar(&clusterIP, "clusterip", "", "ClusterIP to assign, or None for a headless service")
	case corev1.ServiceTypeExternalName:
		cmd.Use = use + " NAME --external-name=DOMAIN [--tcp=PORT[:TARGET]]"
		cmd.Flags().StringVar(&externalName, "external-name", "", "external name of the service")
		_ = cmd.MarkFlagRequired("external-name")
	}
	return cmd
}

func servicePort(arg string) (corev1.ServicePort, error) {
	port, to, given := strings.Cut(arg, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return corev1.ServicePort{}, fmt.Errorf("--tcp=%s: want PORT or PORT:TARGET", arg)
	}
	if !given {
		to = port
	}
	name := strings.ReplaceAll(arg, ":", "-")
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: int32(n), TargetPort: intstr.Parse(to)}, nil
}
