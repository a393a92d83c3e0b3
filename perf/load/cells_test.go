package load

import "testing"

func TestCells(t *testing.T) {
	seen := map[string]bool{}
	for _, cell := range Cells() {
		target, err := cell.NewTarget(FelixConfig{Addr: "127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		if target.Info().Generator != cell.Generator || seen[cell.Name] {
			t.Errorf("cell %s: generator %s, there already: %v", cell.Name, target.Info().Generator, seen[cell.Name])
		}
		seen[cell.Name] = true
		c := cell.Config
		c.Target = target
		if err := c.Validate(); err != nil {
			t.Errorf("cell %s: %v", cell.Name, err)
		}
		if found, err := FindCell(cell.Name); err != nil || found.Name != cell.Name {
			t.Errorf("cell %s: %v", cell.Name, err)
		}
	}
	if _, err := FindCell("nothing"); err == nil {
		t.Error("a cell that is not there was found")
	}
}
