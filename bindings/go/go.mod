module stasis.example/stasis

go 1.19
