package identity

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceFile puts a whole file in place of whatever was there; a reader sees
// the old or the new one. A file that holds the same already is left alone.
func replaceFile(file string, content []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, content) {
		return nil
	}
	temporary, err := writeTemporary(file, content, mode)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, file); err != nil {
		return errors.Join(fmt.Errorf("identity: %w", err), os.Remove(temporary))
	}
	return nil
}

// createFile puts a whole file where none was; fs.ErrExist when somebody was
// quicker. A link, because renaming would overwrite the other's.
func createFile(file string, content []byte, mode fs.FileMode) error {
	temporary, err := writeTemporary(file, content, mode)
	if err != nil {
		return err
	}
	if err := os.Link(temporary, file); err != nil {
		return errors.Join(fmt.Errorf("identity: %w", err), os.Remove(temporary))
	}
	return os.Remove(temporary)
}

// writeTemporary writes beside the file that is meant, so that a rename or a
// link stays on one file system.
func writeTemporary(file string, content []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return "", fmt.Errorf("identity: %w", err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("identity: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}
