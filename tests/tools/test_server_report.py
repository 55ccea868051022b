# The page of a session: that of `stasis report` for the session's export, for its key alone.
from served import ServerTest
from stasis_process import LLAMA, turns_of


class Report(ServerTest):
    def test_the_page_is_that_of_the_command(self):
        with open(self.path("keys"), "w", encoding="ascii") as file:
            file.write("alpha-key-1\nbeta-key-2\n")
        alpha, beta = ({"authorization": f"Bearer {key}"} for key in ("alpha-key-1", "beta-key-2"))
        for place in (), ("--store", f"dir:{self.path('store')}"):
            server = self.serve(LLAMA, "--api-key-file", self.path("keys"), *place)
            name = self.post(server, "/v1/responses", {
                "input": turns_of(LLAMA)[0]["user"] + " </script><script>alert(1)</script>",
                "max_output_tokens": 20}, headers=alpha)["id"].removeprefix("resp_")
            path = f"/v1/sessions/{name}"
            file = self.folder / f"{name}.stasis"
            file.write_bytes(server.ask("GET", f"{path}/export", headers=alpha)[1])
            connection, reply = server.open("GET", f"{path}/report", headers=alpha)
            page = reply.read().decode()
            connection.close()
            self.assertEqual((reply.status, reply.headers["content-type"]),
                             (200, "text/html; charset=utf-8"))
            self.assertEqual(page, self.ok("report", file))
            self.assertIn(name, page)
            self.assertIn("default-src 'none'", page)
            self.assertNotIn("<script>alert", page)
            for status, headers in (401, {}), (404, beta):
                self.assertEqual(server.ask("GET", f"{path}/report", headers=headers)[0], status)
            self.assertEqual(server.ask("POST", f"{path}/report", "{}", alpha)[0], 404)
            self.assertEqual(server.ask("GET", f"/v1/sessions/{'0' * 64}/report",
                                        headers=alpha)[0], 404)
