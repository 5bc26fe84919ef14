package conversion

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	registration "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/apiserver/backends"
	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/webhook"
	"podium/pkg/scheme"
)

// The limits of one call of a webhook.
const (
	timeout     = 30 * time.Second
	maxRequest  = 3 << 20  // bytes of objects, unless a single one is larger
	maxResponse = 16 << 20 // bytes
)

// Config is what all Converters share.
type Config struct {
	Objects backends.Objects
	Dial    webhook.Dial // connects to the endpoints of Services
	Metrics *Metrics
	Now     func() time.Time
}

// Converter calls the webhook of a definition. It is safe for concurrent use.
type Converter struct {
	Config
	crd      string
	hook     *webhook.Hook
	version  string // of ConversionReview
	unusable error  // why there is no hook
}

// New returns the Converter of a definition whose strategy is Webhook. It does not
// connect.
func New(cfg Config, crd *apiextensionsv1.CustomResourceDefinition) *Converter {
	c := &Converter{Config: cfg, crd: crd.Name}
	described := crd.Spec.Conversion.Webhook
	for _, v := range described.ConversionReviewVersions {
		if v == "v1" || v == "v1beta1" {
			c.version = cmp.Or(c.version, v)
		}
	}
	if c.version == "" {
		c.unusable = errors.New("no supported conversion review versions")
		return c
	}
	to := registration.WebhookClientConfig{URL: described.ClientConfig.URL, CABundle: described.ClientConfig.CABundle}
	if s := described.ClientConfig.Service; s != nil {
		to.Service = &registration.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: s.Path, Port: s.Port}
	}
	c.hook, c.unusable = webhook.NewHook(&to, cfg.Objects, cfg.Dial)
	return c
}

// Close closes idle connections to the webhook.
func (c *Converter) Close() {
	if c.hook != nil {
		c.hook.Close()
	}
}

// Convert implements registry.Converter. It blocks for at most 30 s for each review,
// of which it needs several only if the objects are large.
func (c *Converter) Convert(ctx context.Context, to schema.GroupVersionKind, objs []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for len(objs) > 0 {
		raw, err := batch(objs)
		if err != nil {
			return nil, err
		}
		began := c.Now()
		converted, failure, err := c.review(ctx, to, objs[:len(raw)], raw)
		c.Metrics.observe(c.crd, objs[0].GroupVersionKind().Version, to.Version, failure, c.Now().Sub(began))
		if err != nil {
			return nil, plain(err)
		}
		out, objs = append(out, converted...), objs[len(raw):]
	}
	return out, nil
}

// batch returns the first of the objects, at least one, as JSON: as many as one review
// may have.
func batch(objs []*unstructured.Unstructured) (out []runtime.RawExtension, err error) {
	size := 0
	for _, obj := range objs {
		text, err := scheme.TreeJSON(obj.Object)
		if err != nil {
			return nil, fmt.Errorf("encode an object for its conversion: %w", err)
		}
		if size += len(text); size > maxRequest && len(out) > 0 {
			break
		}
		out = append(out, runtime.RawExtension{Raw: text})
	}
	return out, nil
}

// plain returns an error whose message reaches the client as it is.
func plain(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
}

// review has objects converted by one call of the webhook. failure is the value of the
// metrics' label, "" on success.
func (c *Converter) review(ctx context.Context, to schema.GroupVersionKind, objs []*unstructured.Unstructured, raw []runtime.RawExtension) (out []*unstructured.Unstructured, failure string, err error) {
	from := objs[0].GroupVersionKind()
	uid := types.UID(uuid.NewString())
	got, err := c.ask(ctx, &apiextensionsv1.ConversionRequest{UID: uid, DesiredAPIVersion: to.GroupVersion().String(), Objects: raw})
	if err != nil {
		return nil, callFailure, fmt.Errorf("conversion webhook for %v failed: %w", from, err)
	}
	if err := c.verify(got, uid); err != nil {
		return nil, malformed, fmt.Errorf("conversion webhook for %v failed: %w", from, err)
	}
	if n := len(got.Response.ConvertedObjects); n != len(objs) {
		return nil, partial, fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", from, n, len(objs))
	}
	for i := range objs {
		converted, problem := accept(objs[i], got.Response.ConvertedObjects[i].Raw, to)
		if problem != nil {
			return nil, invalid, fmt.Errorf("conversion webhook for %v returned invalid %w", from, problem.at(i, len(objs)))
		}
		out = append(out, converted)
	}
	return out, "", nil
}

// ask sends a request and returns the decoded response.
func (c *Converter) ask(ctx context.Context, r *apiextensionsv1.ConversionRequest) (*apiextensionsv1.ConversionReview, error) {
	if c.unusable != nil {
		return nil, c.unusable
	}
	body, err := json.Marshal(&apiextensionsv1.ConversionReview{TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.GroupName + "/" + c.version, Kind: "ConversionReview"}, Request: r})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := c.hook.Post(ctx, "kube-apiserver", body, maxResponse)
	if err != nil {
		return nil, err
	}
	cost, err := budget.Cost(answer, scheme.JSON)
	if err != nil {
		return nil, err
	}
	if req := request.From(ctx); req != nil {
		release, err := req.Memory.Acquire(ctx, req.Flow, cost)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	got := &apiextensionsv1.ConversionReview{}
	if err := json.Unmarshal(answer, got); err != nil {
		return nil, fmt.Errorf("decode the response: %w", err)
	}
	return got, nil
}

// verify checks that a review answers the request uid. In v1beta1, the contract did not
// demand this.
func (c *Converter) verify(got *apiextensionsv1.ConversionReview, uid types.UID) error {
	want := schema.GroupVersionKind{Group: apiextensionsv1.GroupName, Version: c.version, Kind: "ConversionReview"}
	if c.version == "v1" && got.GroupVersionKind() != want {
		return fmt.Errorf("expected webhook response of %v, got %v", want, got.GroupVersionKind())
	}
	switch resp := got.Response; {
	case resp == nil:
		return errors.New("no response provided")
	case c.version == "v1" && resp.UID != uid:
		return fmt.Errorf("expected response.uid=%q, got %q", uid, resp.UID)
	case resp.Result.Status == metav1.StatusSuccess:
		return nil
	case resp.Result.Message != "":
		return errors.New(resp.Result.Message)
	default:
		return fmt.Errorf("response.result.status was '%s', not 'Success'", resp.Result.Status)
	}
}
