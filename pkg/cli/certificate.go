package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/cli/rest"
)

// certificateOptions are the flags of certificate approve and certificate deny.
type certificateOptions struct {
	*Factory
	selection
	printing
	Force   bool
	Verdict verdict
}

// verdict is a decision about a certificate signing request.
type verdict struct {
	Type     certificatesv1.RequestConditionType
	Opposite certificatesv1.RequestConditionType
	Reason   string
	Verb     string // name of the subcommand
	Done     string // past tense, for messages
}

func newCertificate(f *Factory, run func(context.Context, *certificateOptions) error) *cobra.Command {
	return group("certificate", "Approve or deny certificate signing requests",
		newDecide(f, run, "Approve a certificate signing request",
			verdict{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, "PodiumApprove", "approve", "approved"}),
		newDecide(f, run, "Deny a certificate signing request",
			verdict{certificatesv1.CertificateDenied, certificatesv1.CertificateApproved, "PodiumDeny", "deny", "denied"}))
}

func newDecide(f *Factory, run func(context.Context, *certificateOptions) error, short string, v verdict) *cobra.Command {
	o := &certificateOptions{Factory: f, Verdict: v}
	cmd := &cobra.Command{
		Use:               v.Verb + " NAME... | -f FILE",
		Short:             short,
		Example:           "  podium get csr\n  podium certificate " + v.Verb + " csr-sqgzp",
		ValidArgsFunction: f.completeNames("certificatesigningrequests", "certificatesigningrequest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !o.given() {
				return errors.New("one or more CSRs must be specified as <name> or -f <filename>")
			}
			o.Args = args
			return run(cmd.Context(), o)
		},
	}
	o.fileFlags(cmd, "the requests")
	o.printingFlags(cmd, "print the requests: ", "")
	cmd.Flags().BoolVar(&o.Force, "force", false, "update the CSR even if it is already approved or denied")
	return cmd
}

const requestKind = "certificatesigningrequests.certificates.k8s.io"

func runCertificate(ctx context.Context, o *certificateOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	if len(o.Args) > 0 {
		o.Args = append([]string{requestKind}, o.Args...)
	}
	targets, err := o.resolve(ctx, o.Factory, false)
	if err != nil {
		return err
	}
	report, err := newReport(o.Factory, o.options(), "none")
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		if t.Kind.Resource+"."+t.Kind.Group != requestKind {
			errs = append(errs, fmt.Errorf("%s is not a certificate signing request", t))
			continue
		}
		after, err := o.decide(ctx, c, t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := report.object(after, o.Verdict.Done); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// decideTries is the number of attempts after conflicts with other clients.
const decideTries = 10

// decide adds the verdict to a request, retries after conflicts, and returns the
// request.
func (o *certificateOptions) decide(ctx context.Context, c *rest.Cluster, t target) (*rest.Object, error) {
	for try := 1; ; try++ {
		now, err := c.Get(ctx, t.Kind, "", t.Name)
		if err != nil {
			return nil, err
		}
		request := &certificatesv1.CertificateSigningRequest{}
		text, err := json.Marshal(now)
		if err == nil {
			err = json.Unmarshal(text, request)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
		conditions, changed, err := o.Verdict.on(request, o.Force, time.Now())
		if err != nil || !changed {
			return now, err
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": request.ResourceVersion}, "status": map[string]any{"conditions": conditions},
		})
		if err != nil {
			return nil, err
		}
		after, err := c.Patch(ctx, t.Kind, "", t.Name, types.MergePatchType, patch, rest.WriteQuery(false, manager), "approval")
		if !apierrors.IsConflict(err) || try == decideTries {
			return after, err
		}
	}
}

// on returns the request's conditions with the verdict. It returns an error if
// the opposite verdict is there; changed is false if the verdict is there
// already, unless force is set.
func (v verdict) on(r *certificatesv1.CertificateSigningRequest, force bool, now time.Time) (out []certificatesv1.CertificateSigningRequestCondition, changed bool, err error) {
	for _, c := range r.Status.Conditions {
		switch {
		case c.Type == v.Opposite:
			return nil, false, fmt.Errorf("certificate signing request %q is already %s", r.Name, v.Opposite)
		case c.Type == v.Type && !force:
			return nil, false, nil
		case c.Type != v.Type:
			out = append(out, c)
		}
	}
	return append(out, certificatesv1.CertificateSigningRequestCondition{
		Type: v.Type, Status: "True", Reason: v.Reason,
		Message:        "This CSR was " + v.Done + " by podium certificate " + v.Verb + ".",
		LastUpdateTime: metav1.NewTime(now),
	}), true, nil
}
