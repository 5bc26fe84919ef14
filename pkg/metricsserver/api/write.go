package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/yaml"

	"podium/pkg/scheme"
)

// form is the form of an answer.
type form struct {
	media string // scheme.JSON, YAML or Protobuf
	table bool
}

// maxClauses is how many clauses of an Accept header are looked at.
const maxClauses = 32

// negotiate returns the first form of the Accept header that can be served; it does not
// weigh q values, which clients of the API do not send. Its error is a 406.
func negotiate(accept string) (form, error) {
	if accept == "" {
		return form{media: scheme.JSON}, nil
	}
	for i, clause := range strings.Split(accept, ",") {
		media, params, err := mime.ParseMediaType(clause)
		if err != nil || i >= maxClauses {
			continue
		}
		switch media {
		case "*/*", "application/*":
			media = scheme.JSON
		case scheme.JSON, scheme.YAML, scheme.Protobuf:
		default:
			continue
		}
		switch as := params["as"]; {
		case as == "":
			return form{media: media}, nil
		case as == "Table" && params["g"] == metav1.GroupName && params["v"] == "v1" && media != scheme.Protobuf:
			return form{media, true}, nil
		}
	}
	return form{media: scheme.JSON}, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join([]string{scheme.JSON, scheme.YAML, scheme.Protobuf}, ", "),
	}}
}

// write answers with an object of this API, in the form that the client accepts.
func (s *Server) write(w http.ResponseWriter, r *http.Request, obj runtime.Object, kind string) error {
	f, err := negotiate(r.Header.Get("Accept"))
	if err != nil {
		return err
	}
	gvk := metricsv1beta1.SchemeGroupVersion.WithKind(kind)
	if f.table {
		obj, gvk = table(obj), metav1.SchemeGroupVersion.WithKind("Table")
		gvk.Group = metav1.GroupName
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	body, err := encode(obj, f.media)
	if err != nil {
		return fmt.Errorf("encode a %s: %w", kind, err)
	}
	send(w, http.StatusOK, f.media, body)
	return nil
}

func encode(obj runtime.Object, media string) ([]byte, error) {
	switch media {
	case scheme.YAML:
		return yaml.Marshal(obj)
	case scheme.Protobuf:
		var out strings.Builder
		err := protobuf.NewSerializer(nil, nil).Encode(obj, &out)
		return []byte(out.String()), err
	}
	body, err := json.Marshal(obj)
	return append(body, '\n'), err
}

func send(w http.ResponseWriter, code int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // an error means that the client has gone
}

// fail answers with the Status of an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if !errors.Is(err, context.Canceled) {
			s.Log.Error("serve a request failed", "path", r.URL.Path, "err", err)
		}
		status = apierrors.NewInternalError(err)
	}
	out := status.Status()
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(&out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	send(w, int(out.Code), scheme.JSON, append(body, '\n'))
}
