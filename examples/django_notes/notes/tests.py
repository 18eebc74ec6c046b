"""The example's own tests: `python manage.py test`. The test database is in memory."""

import json
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.test import TestCase

from evervec.integrations.django.test import SearchTestMixin
from notes.models import Note


class SearchTest(SearchTestMixin, TestCase):
    def test_a_note_is_found_until_it_is_archived(self) -> None:
        notes = [{"title": "Tea", "body": "It grows on hills."}, {"title": "Rockets"}]
        self.client.post("/notes/", json.dumps(notes), content_type="application/json")
        for page in ("/search/", "/async-search/"):
            found = self.client.get(page, {"q": "hills"}).json()["notes"]
            assert found[0]["title"] == "Tea"
        Note.objects.update(archived=True)
        assert self.client.get("/search/", {"q": "hills"}).json()["notes"] == []

    def test_the_status_is_for_staff(self) -> None:
        user = User.objects.create_user("u", password="p")
        self.client.force_login(user)
        assert self.client.get("/admin/search/").status_code == 302
        user.is_staff = True
        user.save()
        self.assertContains(self.client.get("/admin/search/"), "Database default")
        assert self.client.post("/admin/search/", {"store": "default"}).status_code == 403

    def test_the_dashboard_is_inside_the_admin(self) -> None:
        ev = Note.evervec.store()
        ev.add("note", "<script>a</script>", id="1", max_attempts=1)
        (job,) = ev.queue.claim(1)
        ev.queue.fail(job, "it is <b>broken</b>")
        place = "/admin/search/default/"
        assert self.client.get(place).status_code == 302
        self.client.force_login(User.objects.create_user("u", password="p", is_staff=True))
        self.assertContains(self.client.get(place), "Overview")
        page = f"{place}ui/jobs/{job.job_id}"
        self.assertNotContains(self.client.get(page), "/retry")
        assert self.client.post(f"{page}/retry").status_code == 403
        self.client.force_login(User.objects.create_superuser("root", password="p"))
        shown = self.client.get(page)
        self.assertNotContains(shown, "<b>broken")
        token = shown.content.decode().partition('data-form-token="')[2].partition('"')[0]
        kind = "application/x-www-form-urlencoded"
        forged = urlencode({"form_token": "x"})
        assert self.client.post(f"{page}/retry", forged, kind).status_code == 403
        form = urlencode({"form_token": token, "next": page})
        done = self.client.post(f"{page}/retry", form, kind)
        assert (done.status_code, done["location"]) == (303, page)
        found = ev.queue.get(job.job_id)
        assert found is not None
        assert found.status == "pending"
        assert self.client.get(place, headers={"accept": "text/event-stream"}).status_code == 204
        assert self.client.get("/admin/search/other/").status_code == 404

    def test_a_superuser_may_retry_what_failed(self) -> None:
        ev = Note.evervec.store()
        ev.add("note", "a text", id="1", max_attempts=1)
        (job,) = ev.queue.claim(1)
        ev.queue.fail(job, "it is <b>broken</b>")
        self.client.force_login(User.objects.create_superuser("root", password="p"))
        self.assertContains(self.client.get("/admin/search/"), "it is &lt;b&gt;broken&lt;/b&gt;")
        retried = self.client.post("/admin/search/", {"store": "default"}, follow=True)
        self.assertContains(retried, "1 failed jobs are retried.")
        wrong = self.client.post("/admin/search/", {"store": "<i>"}, follow=True)
        self.assertContains(wrong, "There is no store")
        self.assertNotContains(wrong, "<i>")
