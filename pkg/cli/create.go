package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"podium/pkg/cli/manifest"
	"podium/pkg/cli/rest"
)

// createOptions are the flags of create and of its subcommands.
type createOptions struct {
	change
	// Make returns the objects of a subcommand; nil: create the objects of
	// files.
	Make func(namespace string) ([]*rest.Object, error)
	Raw  string // URI to which the file is posted

	Edit    bool // open each object in the user's editor first
	Windows bool // line endings of what is edited
}

func newCreate(f *Factory, run func(context.Context, *createOptions) error) *cobra.Command {
	o := &createOptions{change: change{Factory: f}}
	cmd := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Create a resource from a file or from standard input",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !o.given() {
				return errors.New("must specify one of -f and -k, or what to create: podium create --help")
			}
			if o.Raw != "" {
				return o.postRaw(cmd.Context())
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Raw, "raw", "", "raw URI to POST to the server; uses the transport of the kubeconfig file")
	cmd.Flags().BoolVar(&o.Edit, "edit", false, "edit the objects before they are created, in YAML or, with -o json, in JSON")
	cmd.Flags().BoolVar(&o.Windows, "windows-line-endings", false, "with --edit, write the lines of the edited file with Windows line endings")
	o.labelFlag(cmd)
	o.fileFlags(cmd, "the objects to create")
	o.commonFlags(cmd)
	cmd.AddCommand(
		newCreateNamespace(f, run), newCreateConfigMap(f, run), newCreateSecret(f, run),
		newCreateIngress(f, run), newCreatePodDisruptionBudget(f, run), newCreatePriorityClass(f, run), newCreateQuota(f, run),
		newCreateDeployment(f, run), newCreateJob(f, run), newCreateCronJob(f, run), newCreateService(f, run), newCreateServiceAccount(f, run),
		newCreateRole(f, run), newCreateClusterRole(f, run), newCreateRoleBinding(f, run), newCreateClusterRoleBinding(f, run), newCreateToken(f, runCreateToken),
	)
	return cmd
}

func (o *createOptions) commonFlags(cmd *cobra.Command) {
	dryRunFlag(cmd, &o.DryRun)
	o.formatFlag(cmd)
	o.managerFlag(cmd)
	o.validateFlag(cmd)
	o.saveConfigFlag(cmd)
}

func runCreate(ctx context.Context, o *createOptions) error {
	if o.Make != nil && o.DryRun == "client" {
		return o.show()
	}
	return o.eachOf(ctx, o.targets, func(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, string, error) {
		if o.Edit {
			edited, err := o.edited(ctx, t)
			if err != nil || edited == nil {
				return nil, "", err
			}
			t = *edited
		}
		if err := o.saveConfig(t.Object); err != nil || o.DryRun == "client" {
			return t.Object, "created", err
		}
		obj, err := c.Create(ctx, t.Kind, t.Namespace, t.Object, o.query())
		return obj, "created", err
	})
}

// edited returns the target as the user has edited it, or nil if nothing was changed.
func (o *createOptions) edited(ctx context.Context, t target) (*target, error) {
	e := &editOptions{change: o.change, Windows: o.Windows}
	e.Edit = e.editor
	original, err := e.encode(t.Object)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "podium-create-*"+e.extension())
	if err != nil {
		return nil, err
	}
	file.Close()
	text, err := e.open(ctx, file.Name(), original, "")
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 || bytes.Equal(text, original) {
		fmt.Fprintln(o.Err, "Edit cancelled, no changes made.")
		return nil, os.Remove(file.Name())
	}
	docs, err := manifest.Parse(text, file.Name())
	if err != nil {
		return nil, fmt.Errorf("%w; what you wrote is in %s", err, file.Name())
	}
	if len(docs) != 1 || docs[0].Object.GroupVersionKind() != t.Object.GroupVersionKind() {
		return nil, fmt.Errorf("%s must stay one object of its kind; what you wrote is in %s", t, file.Name())
	}
	t.Object, t.Name = docs[0].Object, docs[0].Object.GetName()
	return &t, os.Remove(file.Name())
}

// postRaw posts the one file of -f to a path, and prints the answer.
func (o *createOptions) postRaw(ctx context.Context) error {
	if len(o.Files) != 1 || o.Kustomize != "" || o.Format != "" || o.Labels != "" || o.DryRun != "none" || o.Edit {
		return errors.New("--raw can only use a single local file or stdin, without other flags")
	}
	body, err := o.openFile(o.Files[0])
	if err != nil {
		return err
	}
	return o.sendRaw(ctx, http.MethodPost, o.Raw, body)
}

// show prints what a subcommand would create, without a cluster.
func (o *createOptions) show() error {
	if err := o.check(); err != nil {
		return err
	}
	report, err := newReport(o.Factory, o.options(), o.DryRun)
	if err != nil {
		return err
	}
	objects, err := o.made()
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := o.saveConfig(obj); err != nil {
			return err
		}
		if err := report.object(obj, "created"); err != nil {
			return err
		}
	}
	return nil
}

// made returns the objects of a subcommand, in its namespace.
func (o *createOptions) made() ([]*rest.Object, error) {
	namespace, _, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	return o.Make(namespace)
}

// targets returns the objects to create: the subcommand's, or those of files.
func (o *createOptions) targets(ctx context.Context) ([]target, error) {
	if o.Make == nil {
		return o.resolve(ctx, o.Factory, false)
	}
	objects, err := o.made()
	if err != nil {
		return nil, err
	}
	c, err := o.Cluster()
	if err != nil {
		return nil, err
	}
	var out []target
	for _, obj := range objects {
		k, err := c.ByGVK(ctx, obj.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		out = append(out, target{Kind: k, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj})
	}
	return out, nil
}
