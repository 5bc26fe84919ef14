package match

import (
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// User returns the user of a request. Writes of the server itself have
// upstream's name for it.
func User(a *admission.Attributes) *request.User {
	if a.User != nil {
		return a.User
	}
	return &request.User{Name: "system:apiserver", Groups: []string{"system:masters"}}
}

// Request describes a request that matches in a form, without UID and objects.
func Request(a *admission.Attributes, in *admission.Form) (*admissionv1.AdmissionRequest, error) {
	own := a.InForms()[0]
	kind, resource := metav1.GroupVersionKind(own.Kind), metav1.GroupVersionResource(own.Resource)
	options, err := optionsOf(a)
	if err != nil {
		return nil, err
	}
	return &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(in.Kind), Resource: metav1.GroupVersionResource(in.Resource), SubResource: a.Subresource,
		RequestKind: &kind, RequestResource: &resource, RequestSubResource: a.Subresource,
		Name: a.Name, Namespace: Namespace(a), Operation: admissionv1.Operation(a.Operation),
		UserInfo: userInfo(User(a)), DryRun: &a.DryRun, Options: runtime.RawExtension{Raw: options},
	}, nil
}

func userInfo(u *request.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: map[string]authenticationv1.ExtraValue{}}
	for key, values := range u.Extra {
		info.Extra[key] = values
	}
	return info
}

// optionsOf returns the options of a request as JSON; nil if there are none.
func optionsOf(a *admission.Attributes) ([]byte, error) {
	kind := ""
	switch a.Options.(type) {
	case *metav1.CreateOptions:
		kind = "CreateOptions"
	case *metav1.UpdateOptions:
		kind = "UpdateOptions"
	case *metav1.PatchOptions:
		kind = "PatchOptions"
	case *metav1.DeleteOptions:
		kind = "DeleteOptions"
	default:
		return nil, nil
	}
	bare, err := scheme.BareJSON(a.Options)
	if err != nil {
		return nil, err
	}
	return scheme.TypedJSON(metav1.SchemeGroupVersion.WithKind(kind), bare), nil
}
