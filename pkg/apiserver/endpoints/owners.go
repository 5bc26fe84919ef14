package endpoints

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// Upstream's warnings about owner references that a client, or a mutating plugin, has
// repeated.
const (
	ownersRepeated         = ".metadata.ownerReferences contains duplicate entries" + ownersFix
	ownersRepeatedByPlugin = ".metadata.ownerReferences contains duplicate entries after mutating admission happens" + ownersFix
	ownersFix              = "; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
)

// uniteOwners removes owner references that are equal to an earlier one. If there are
// any, it adds the warning to the response.
func uniteOwners(ctx context.Context, obj scheme.Object, warning string) {
	var unique []metav1.OwnerReference
	var repeated []string
	seen := map[owner]bool{}
	for _, ref := range obj.GetOwnerReferences() {
		if o := ownerOf(ref); seen[o] {
			repeated = append(repeated, string(ref.UID))
		} else {
			seen[o] = true
			unique = append(unique, ref)
		}
	}
	if len(repeated) > 0 {
		request.Warn(ctx, fmt.Sprintf(warning, strings.Join(repeated, ", ")))
		obj.SetOwnerReferences(unique)
	}
}

// owner is an owner reference that can be compared.
type owner struct {
	ref               metav1.OwnerReference // without pointers
	controller, block flag
}

type flag struct{ set, value bool }

func ownerOf(ref metav1.OwnerReference) owner {
	o := owner{ref: ref, controller: flagOf(ref.Controller), block: flagOf(ref.BlockOwnerDeletion)}
	o.ref.Controller, o.ref.BlockOwnerDeletion = nil, nil
	return o
}

func flagOf(b *bool) flag {
	if b == nil {
		return flag{}
	}
	return flag{true, *b}
}
