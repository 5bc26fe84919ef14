package apiserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"podium/pkg/storage/encryption"
)

// encryptionFlags binds the flags of encryption at rest to c.
func encryptionFlags(f *pflag.FlagSet, c *encryption.Config) {
	f.StringVar(&c.File, "encryption-provider-config", "", "file with the EncryptionConfiguration (apiserver.config.k8s.io/v1); empty: nothing is encrypted")
	f.BoolVar(&c.Reload, "encryption-provider-config-automatic-reload", false, "reload the file of --encryption-provider-config when it changes")
}

func validateEncryption(c *encryption.Config) error {
	if c.Reload && c.File == "" {
		return errors.New("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
	}
	return nil
}

// openKeys returns the keys of the configuration file, or a Keyring without
// encryption if no file is given. ctx bounds calls to KMS providers.
func openKeys(ctx context.Context, c encryption.Config) (*encryption.Keyring, error) {
	keys, err := encryption.Open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return keys, nil
}
