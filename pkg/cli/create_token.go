package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/cli/output"
)

// createTokenOptions are the flags of create token.
type createTokenOptions struct {
	*Factory
	Account   string
	Audiences []string
	Duration  time.Duration
	BoundKind string
	BoundName string
	BoundUID  string
	printing
}

func newCreateToken(f *Factory, run func(context.Context, *createTokenOptions) error) *cobra.Command {
	o := &createTokenOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "token SERVICEACCOUNT",
		Short: "Request a service account token",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Account = args[0]
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&o.Audiences, "audience", nil, "audience of the requested token; may be repeated (default: the API server)")
	fs.DurationVar(&o.Duration, "duration", 0, "requested lifetime of the token (default: the server decides)")
	fs.StringVar(&o.BoundKind, "bound-object-kind", "", "kind of an object to bind the token to: Pod, Secret or Node")
	fs.StringVar(&o.BoundName, "bound-object-name", "", "name of an object to bind the token to")
	fs.StringVar(&o.BoundUID, "bound-object-uid", "", "UID of an object to bind the token to")
	o.printingFlags(cmd, "print the TokenRequest: ", "")
	return cmd
}

// check reports invalid flags and combinations.
func (o *createTokenOptions) check() error {
	switch {
	case o.Duration < 0 || o.Duration > 0 && o.Duration < time.Second || o.Duration%time.Second != 0:
		return fmt.Errorf("--duration %s: must be some whole seconds", o.Duration)
	case o.BoundKind == "" && (o.BoundName != "" || o.BoundUID != ""):
		return errors.New("--bound-object-kind is required if --bound-object-name or --bound-object-uid is given")
	case o.BoundKind != "" && o.BoundName == "":
		return errors.New("--bound-object-name is required if --bound-object-kind is given")
	}
	switch o.BoundKind {
	case "", "Pod", "Secret", "Node":
		return nil
	}
	return fmt.Errorf("--bound-object-kind %s: use Pod, Secret or Node", o.BoundKind)
}

func (o *createTokenOptions) request() *authenticationv1.TokenRequest {
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: o.Audiences}}
	if o.Duration > 0 {
		req.Spec.ExpirationSeconds = new(int64(o.Duration / time.Second))
	}
	if o.BoundKind != "" {
		req.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			Kind: o.BoundKind, APIVersion: "v1", Name: o.BoundName, UID: types.UID(o.BoundUID),
		}
	}
	return req
}

func runCreateToken(ctx context.Context, o *createTokenOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	body, err := toObject(o.request(), authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"))
	if err != nil {
		return err
	}
	delete(body.Object, "status")
	namespace, _, err := o.Namespace()
	if err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	accounts, err := c.ByGVK(ctx, corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	if err != nil {
		return err
	}
	answer, err := c.Post(ctx, accounts.Path(namespace, o.Account, "token"), body)
	if err != nil {
		return err
	}
	if format := o.options(); format.Format != "" {
		printer, err := output.New(format)
		if err != nil {
			return err
		}
		return printer.Print(o.Out, answer)
	}
	token, _, err := unstructured.NestedString(answer.Object, "status", "token")
	if err != nil || token == "" {
		return errors.New("failed to create token: no token in server response")
	}
	_, err = fmt.Fprintln(o.Out, token)
	return err
}
