package memory_test

import (
	"testing"

	"podium/pkg/storage"
	"podium/pkg/storage/memory"
	"podium/pkg/storage/storagetest"
)

func TestContract(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Store { return memory.New() })
}
