package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
)

// appendHash is the flag --append-hash: the name of a ConfigMap or Secret ends with a
// hash of its content, so that other content is another object.
type appendHash bool

func (h *appendHash) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar((*bool)(h), "append-hash", false, "append a hash of the content to the name")
}

// configMap appends the hash to the name of a ConfigMap if the flag is set.
func (h *appendHash) configMap(cm *corev1.ConfigMap) error {
	content := map[string]any{"kind": "ConfigMap", "name": cm.Name, "data": cm.Data}
	if len(cm.BinaryData) > 0 {
		content["binaryData"] = cm.BinaryData
	}
	return h.append(&cm.Name, content)
}

// secret appends the hash to the name of a Secret if the flag is set.
func (h *appendHash) secret(s *corev1.Secret) error {
	return h.append(&s.Name, map[string]any{"kind": "Secret", "type": s.Type, "name": s.Name, "data": s.Data})
}

// append uses kubectl's hash: ten hexadecimal digits, with letters in place of those
// that could make words or numbers.
func (h *appendHash) append(name *string, content map[string]any) error {
	if !*h {
		return nil
	}
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("hash the content: %w", err)
	}
	sum := sha256.Sum256(text)
	digits := strings.NewReplacer("0", "g", "1", "h", "3", "k", "a", "m", "e", "t").Replace(hex.EncodeToString(sum[:])[:10])
	*name += "-" + digits
	return nil
}
