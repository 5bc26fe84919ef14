package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// maxResponse is the maximum size of a response in bytes: a patch that replaces
// an object of the maximum size, in base64, and as much text.
const maxResponse = 8 << 20

// callError means that the hook could not be asked, or did not answer as the
// contract demands. The failure policy decides about the request.
type callError struct {
	hook   string
	reason error
	status *apierrors.StatusError // for the metrics
}

func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.hook, e.reason)
}

func (e *callError) Unwrap() error { return e.reason }

func (h *hook) failed(status *apierrors.StatusError, reason error) *callError {
	return &callError{h.Name, reason, status}
}

// review is an AdmissionReview of v1 or v1beta1, which are the same in JSON.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Request         *admissionv1.AdmissionRequest  `json:"request,omitempty"`
	Response        *admissionv1.AdmissionResponse `json:"response,omitempty"`
}

// version returns the first version of AdmissionReview that both sides know.
func (h *hook) version() (schema.GroupVersion, error) {
	for _, v := range h.AdmissionReviewVersions {
		switch v {
		case "v1":
			return admissionv1.SchemeGroupVersion, nil
		case "v1beta1":
			return admissionv1beta1.SchemeGroupVersion, nil
		}
	}
	return schema.GroupVersion{}, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
}

// ask sends a request to the hook and returns the verified response. The error
// is a *callError.
func (h *hook) ask(ctx context.Context, mutating bool, r admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if h.unusable != nil {
		return nil, h.failed(apierrors.NewInternalError(h.unusable), h.unusable)
	}
	gv, err := h.version()
	if err != nil {
		return nil, h.failed(apierrors.NewBadRequest("error creating admission objects"), fmt.Errorf("could not create admission objects: %w", err))
	}
	r.UID = types.UID(uuid.NewString())
	question := &review{TypeMeta: metav1.TypeMeta{APIVersion: gv.String(), Kind: "AdmissionReview"}, Request: &r}
	body, err := json.Marshal(question)
	if err != nil {
		return nil, h.failed(apierrors.NewBadRequest("error creating admission objects"), fmt.Errorf("could not create admission objects: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	answer, err := h.client.Post(ctx, "kube-apiserver-admission", body, maxResponse)
	var got *review
	if err == nil {
		got, err = decode(ctx, answer)
	}
	if err != nil {
		status := apierrors.NewServiceUnavailable("error calling webhook")
		errors.As(err, &status)
		return nil, h.failed(status, fmt.Errorf("failed to call webhook: %w", err))
	}
	if err := got.verify(question, mutating); err != nil {
		return nil, h.failed(apierrors.NewServiceUnavailable("error validating webhook response"), fmt.Errorf("received invalid webhook response: %w", err))
	}
	return got.Response, nil
}

// decode decodes a response, once the memory for that is free.
func decode(ctx context.Context, answer []byte) (*review, error) {
	cost, err := budget.Cost(answer, scheme.JSON)
	if err != nil {
		return nil, err
	}
	if r := request.From(ctx); r != nil {
		release, err := r.Memory.Acquire(ctx, r.Flow, cost)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	got := &review{}
	if err := json.Unmarshal(answer, got); err != nil {
		return nil, fmt.Errorf("decode the response: %w", err)
	}
	return got, nil
}

// verify checks that a review answers the question as the contract demands. The
// texts of errors are upstream's.
func (r *review) verify(question *review, mutating bool) error {
	if r.Response == nil {
		return errors.New("webhook response was absent")
	}
	resp := r.Response
	if question.APIVersion != admissionv1.SchemeGroupVersion.String() { // v1beta1 demanded nothing
		resp.PatchType = nil
		if !mutating {
			resp.Patch = nil
		} else if len(resp.Patch) > 0 {
			patch := admissionv1.PatchTypeJSONPatch
			resp.PatchType = &patch
		}
		return nil
	}
	want, got := question.GroupVersionKind(), r.GroupVersionKind()
	switch {
	case resp.UID != question.Request.UID:
		return fmt.Errorf("expected response.uid=%q, got %q", question.Request.UID, resp.UID)
	case got != want:
		return fmt.Errorf("expected webhook response of %v, got %v", want, got)
	case !mutating && len(resp.Patch) > 0:
		return errors.New("validating webhook may not return response.patch")
	case !mutating && resp.PatchType != nil:
		return errors.New("validating webhook may not return response.patchType")
	case len(resp.Patch) > 0 && resp.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(resp.Patch) == 0 && resp.PatchType != nil:
		return errors.New("webhook returned response.patchType but not response.patch")
	case resp.PatchType != nil && *resp.PatchType == "":
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *resp.PatchType)
	}
	return nil
}

// record passes on the warnings and audit annotations of a response.
func (h *hook) record(ctx context.Context, resp *admissionv1.AdmissionResponse) {
	for key, value := range resp.AuditAnnotations {
		if key = h.Name + "/" + key; len(validation.IsQualifiedName(key)) == 0 {
			request.Annotate(ctx, key, value)
		}
	}
	for _, w := range resp.Warnings {
		request.Warn(ctx, w)
	}
}

// deniedError means that the hook has denied the request.
type deniedError struct{ *apierrors.StatusError }

// denial returns the error of a request that the hook has denied, with
// upstream's text.
func (h *hook) denial(result *metav1.Status) *deniedError {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	status.Code = max(status.Code, http.StatusBadRequest)
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	why := " without explanation"
	if text := cmp.Or(status.Message, string(status.Reason)); text != "" {
		why = ": " + text
	}
	status.Message = fmt.Sprintf("admission webhook %q denied the request%s", h.Name, why)
	return &deniedError{&apierrors.StatusError{ErrStatus: status}}
}
