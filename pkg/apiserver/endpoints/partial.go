package endpoints

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// partial shows only an object's metadata.
type partial struct {
	obj func() scheme.Object
	enc wire.Encoded
}

func (p partial) JSON() ([]byte, error) {
	data, err := json.Marshal(&metav1.PartialObjectMetadata{ObjectMeta: objectMeta(p.obj())})
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return data, nil
}

// Proto cuts the metadata out of the object's own message.
func (p partial) Proto() ([]byte, error) {
	whole, err := p.enc.Proto()
	if err != nil {
		return nil, err
	}
	metadata, err := scheme.ProtoMetadata(whole)
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(metadata)+4), 1<<3|2)
	out = binary.AppendUvarint(out, uint64(len(metadata)))
	return append(out, metadata...), nil
}

// objectMeta is an object's metadata as a struct.
func objectMeta(obj scheme.Object) metav1.ObjectMeta {
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if m, ok := a.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return *m
		}
	}
	return metav1.ObjectMeta{
		Name: obj.GetName(), GenerateName: obj.GetGenerateName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(),
		CreationTimestamp: obj.GetCreationTimestamp(), DeletionTimestamp: obj.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: obj.GetDeletionGracePeriodSeconds(),
		Labels:                     obj.GetLabels(), Annotations: obj.GetAnnotations(),
		OwnerReferences: obj.GetOwnerReferences(), Finalizers: obj.GetFinalizers(), ManagedFields: obj.GetManagedFields(),
	}
}

// writePartialList answers with the metadata of a list's objects.
func writePartialList(w http.ResponseWriter, r *http.Request, f wire.Format, p page) error {
	items := make([][]byte, len(p.entries))
	for i, e := range p.entries {
		var err error
		if one := (partial{e.Object, e}); f.Media == scheme.Protobuf {
			items[i], err = one.Proto()
		} else {
			items[i], err = one.JSON()
			if err == nil {
				items[i] = scheme.TypedJSON(f.As.GroupVersion().WithKind(wire.PartialObjectMetadata), items[i])
			}
		}
		if err != nil {
			return err
		}
	}
	gvk := f.As.GroupVersion().WithKind(wire.PartialObjectMetadataList)
	return writeItems(w, r, f, gvk, &p.meta, items)
}
